"use strict";
// Runs before the page is drawn, so that a chosen theme does not flash.
(() => {
  try {
    const theme = localStorage.getItem("treelabel-theme");
    if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  } catch { /* no store, no choice */ }
})();
