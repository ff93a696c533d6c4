"use strict";
(() => {
  const root = document.documentElement;
  const remembered = {
    get() { try { return localStorage.getItem("treelabel-theme"); } catch { return null; } },
    set(value) { try { localStorage.setItem("treelabel-theme", value); } catch { /* a page from disk may have no store */ } },
  };
  const themes = ["auto", "light", "dark"];
  const button = document.getElementById("theme");
  const setTheme = (theme) => {
    if (theme === "auto") delete root.dataset.theme; else root.dataset.theme = theme;
    button.textContent = `Theme: ${theme}`;
  };
  let theme = themes.includes(remembered.get()) ? remembered.get() : "auto";
  setTheme(theme);
  button.hidden = false;
  button.addEventListener("click", () => {
    theme = themes[(themes.indexOf(theme) + 1) % themes.length];
    setTheme(theme);
    remembered.set(theme);
  });
  addEventListener("beforeprint", () => document.querySelectorAll("details.printed").forEach((one) => { one.open = true; }));

  const data = JSON.parse(document.getElementById("tree-data").textContent);
  const CHUNK = 200, MOST_FOUND = 100, MOST_WORST = 5, FEWEST_TRUE = 5;
  const size = data.names.length;
  const parentsOf = (node) => [].concat(data.parents[node]);
  const children = Array.from({ length: size + 1 }, () => []);
  for (let node = 0; node < size; node++) for (const above of parentsOf(node)) children[above + 1].push(node);
  const count = (value) => value.toLocaleString("en");
  const tree = document.getElementById("tree");
  const query = document.getElementById("tree-query");
  const found = document.getElementById("tree-found");
  const order = document.getElementById("tree-order");
  const chosen = document.getElementById("tree-system");
  const at = () => (chosen ? Number(chosen.value) : 0);

  const STOPS = [[213, 94, 0], [232, 160, 90], [185, 190, 196], [111, 177, 219], [0, 114, 178]];
  const colour = (share) => {
    const place = share * (STOPS.length - 1), low = Math.min(Math.floor(place), STOPS.length - 2), part = place - low;
    return `rgb(${STOPS[low].map((value, i) => Math.round(value + part * (STOPS[low + 1][i] - value))).join(" ")})`;
  };
  const make = (tag, className, text) => {
    const element = document.createElement(tag);
    if (className) element.className = className;
    if (text !== undefined) element.textContent = text;
    return element;
  };
  const quality = (node) => {
    const value = data.f1[at()][node], box = make("span", "f1");
    const track = make("i"), fill = make("b");
    if (value >= 0) {
      fill.style.width = `${Math.max(value / 10, 3)}%`;
      fill.style.background = colour(value / 1000);
    }
    track.append(fill);
    track.setAttribute("aria-hidden", "true");
    const text = value < 0 ? "–" : (value / 1000).toFixed(2);
    box.append(track, make("span", "", text));
    box.title = value < 0 ? "neither true nor predicted" : `F1 ${(value / 1000).toFixed(3)}`;
    return box;
  };
  const counts = (node) => {
    const parts = [`${count(data.true[node])} true`, `${count(data.predicted[at()][node])} predicted`];
    if (data.train) parts.push(`${count(data.train[node])} in training`);
    return make("span", "counts", parts.join(" · "));
  };
  const sorted = (nodes) => {
    const f1 = data.f1[at()], keys = {
      worst: (node) => (f1[node] < 0 ? 2000 : f1[node]),
      most: (node) => -data.true[node],
    }, key = keys[order.value];
    return key ? [...nodes].sort((one, two) => key(one) - key(two) || one - two) : nodes;
  };
  const item = (node) => {
    const element = make("li"), line = make("div", "node");
    element.dataset.node = node;
    let name;
    if (children[node + 1].length) {
      name = make("button", "", data.names[node]);
      name.type = "button";
      name.setAttribute("aria-expanded", "false");
      name.addEventListener("click", () => toggle(element, node, name));
    } else {
      name = make("span", "leaf", data.names[node]);
    }
    line.append(name, quality(node), counts(node));
    element.append(line);
    return element;
  };
  const toggle = (element, node, name) => {
    const inner = element.querySelector(":scope > ul");
    if (inner) {
      inner.remove();
      name.setAttribute("aria-expanded", "false");
      return;
    }
    element.append(list(children[node + 1]));
    name.setAttribute("aria-expanded", "true");
  };
  const list = (nodes, element = make("ul")) => {
    const ordered = sorted(nodes);
    let shown = 0;
    const more = make("button", "more");
    more.type = "button";
    const show = (upTo) => {
      more.remove();
      const part = document.createDocumentFragment();
      for (; shown < Math.min(upTo, ordered.length); shown++) part.append(item(ordered[shown]));
      element.append(part);
      if (shown < ordered.length) {
        more.textContent = `Show more (${count(ordered.length - shown)} left)`;
        element.append(more);
      }
    };
    more.addEventListener("click", () => show(shown + CHUNK));
    element.reveal = (node) => show(ordered.indexOf(node) + 1);
    show(CHUNK);
    return element;
  };
  const draw = () => { tree.replaceChildren(); list(children[0], tree); };
  const pathOf = (node) => {
    const path = [node];
    for (let above = parentsOf(node).at(-1); above >= 0; above = parentsOf(above).at(-1)) path.unshift(above);
    return path;
  };
  // Opens the branches down to a label; a label that somebody asked for is shown and marked as found.
  const open = (node, asked = true) => {
    let level = tree;
    const path = pathOf(node);
    path.forEach((step, depth) => {
      const inside = () => level.querySelector(`:scope > li[data-node="${step}"]`);
      if (!inside()) level.reveal(step);
      const element = inside();
      if (depth === path.length - 1 && !asked) {
        element.firstChild.classList.add("worst");
        return;
      }
      if (depth === path.length - 1) {
        tree.querySelectorAll(".found").forEach((one) => one.classList.remove("found"));
        element.firstChild.classList.add("found");
        element.scrollIntoView({ block: "center" });
        element.firstChild.firstChild.focus?.({ preventScroll: true });
        return;
      }
      if (!element.querySelector(":scope > ul")) toggle(element, step, element.querySelector("button"));
      level = element.querySelector(":scope > ul");
    });
  };
  const search = () => {
    const wanted = query.value.trim().toLowerCase();
    found.replaceChildren();
    if (!wanted) return;
    const hits = [];
    let total = 0;
    for (let node = 0; node < size; node++) {
      if (!data.names[node].toLowerCase().includes(wanted)) continue;
      if (total++ < MOST_FOUND) hits.push(node);
    }
    found.append(make("p", "small", total === 0 ? "No label has this in its name."
      : total > MOST_FOUND ? `${count(total)} labels; the first ${MOST_FOUND}:` : `${count(total)} label${total === 1 ? "" : "s"}:`));
    const hitList = make("ul", "tree");
    for (const node of hits) {
      const element = make("li"), line = make("div", "node");
      const name = make("button", "", pathOf(node).map((step) => data.names[step]).join(" > "));
      name.type = "button";
      name.addEventListener("click", () => open(node));
      line.append(name, quality(node), counts(node));
      element.append(line);
      hitList.append(element);
    }
    found.append(hitList);
  };
  let waiting;
  query.addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(search, 120); });
  order.addEventListener("change", draw);
  if (chosen) chosen.addEventListener("change", () => { draw(); openWorst(); search(); });
  document.getElementById("tree-close").addEventListener("click", draw);
  // The leaves that most is lost on: lowest F1 among those with documents enough to tell.
  const openWorst = () => {
    const f1 = data.f1[at()], worst = [];
    for (let node = 0; node < size; node++) {
      if (!children[node + 1].length && data.true[node] >= FEWEST_TRUE && f1[node] >= 0 && f1[node] < 1000) worst.push(node);
    }
    worst.sort((one, two) => f1[one] - f1[two] || data.true[two] - data.true[one]);
    worst.slice(0, MOST_WORST).forEach((node) => open(node, false));
    const told = `The branches of the ${Math.min(MOST_WORST, worst.length)} labels with the lowest F1 are open, of those with at least ${FEWEST_TRUE} true documents.`;
    document.getElementById("tree-worst").textContent = worst.length ? told : "";
  };
  draw();
  openWorst();
  if (data.left_out) {
    const told = `${count(data.left_out)} labels with the fewest documents are left out, to keep this file small.`;
    document.getElementById("tree-left-out").textContent = told;
  }
  document.getElementById("tree-tools").hidden = false;
})();
