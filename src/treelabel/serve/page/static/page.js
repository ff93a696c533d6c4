"use strict";
(() => {
  const $ = (selector, root = document) => root.querySelector(selector);
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const make = (tag, attributes = {}, text) => {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    if (text !== undefined) element.textContent = text;
    return element;
  };
  const count = (value) => value.toLocaleString("en");
  const announce = (text) => { $("#announce").textContent = text; };
  const store = (kind, key) => ({
    get() { try { return kind.getItem(key); } catch { return null; } },
    set(value) { try { if (value === null) kind.removeItem(key); else kind.setItem(key, value); } catch { /* no store */ } },
  });
  const delayed = (action, wait) => {
    let timer;
    return (...values) => { clearTimeout(timer); timer = setTimeout(() => action(...values), wait); };
  };

  // Requests: only to this service, with the token if one was entered.
  const token = store(sessionStorage, "treelabel-token");
  const send = (address, options = {}) => {
    const headers = new Headers(options.headers);
    if (token.get()) headers.set("Authorization", `Bearer ${token.get()}`);
    return fetch(address, { ...options, headers });
  };
  const parse = async (response) => {
    const page = new DOMParser().parseFromString("", "text/html");
    // What is refused before it reaches the page, such as a request that is too large, is no page.
    if (!response.headers.get("Content-Type")?.includes("json")) return new DOMParser().parseFromString(await response.text(), "text/html");
    page.body.append(make("div", { id: "problem" }));
    page.body.firstChild.append(make("p", { class: "problem" }, (await response.json()).detail));
    return page;
  };
  const api = (path) => `${document.body.dataset.root}/v1/models/${encodeURIComponent(document.body.dataset.model)}${path}`;

  // Where tokens are needed, the page itself is fetched with one, and takes the place of the form for it.
  const enter = async () => {
    if (!$("#token-form") || !token.get()) return;
    const response = await send(location.href);
    if (response.status === 401) {
      token.set(null);
      $("#token-problem").textContent = "The service does not know this token.";
      return;
    }
    const page = await parse(response);
    document.title = page.title;
    document.body.replaceWith(document.adoptNode(page.body));
    start();
  };

  // Theme, as in reports.
  const themes = ["auto", "light", "dark"], remembered = store(localStorage, "treelabel-theme");
  const setTheme = (theme) => {
    if (theme === "auto") delete document.documentElement.dataset.theme; else document.documentElement.dataset.theme = theme;
    $("#theme").textContent = `Theme: ${theme}`;
  };
  const theme = () => (themes.includes(remembered.get()) ? remembered.get() : "auto");

  // Forms: the answer is a page, of which a part takes the place of a part of this one.
  const problemOf = (page) => $("#problem .problem", page)?.textContent ?? "The service did not answer as expected.";
  const showProblem = (form, text) => {
    let note = $(":scope > .bad", form);
    if (!note) { note = make("p", { class: "bad", role: "alert" }); form.append(note); }
    note.textContent = text;
  };
  let latest = 0;
  const submit = async (form, submitter) => {
    const data = new FormData(form, submitter), turn = ++latest;
    let address = form.action, options = {};
    if (form.method === "post") options = { method: "POST", body: new URLSearchParams(data) };
    else address = `${address.split("#")[0]}?${new URLSearchParams(data)}`;
    form.setAttribute("aria-busy", "true");
    let page;
    try {
      page = await parse(await send(address, options));
    } catch {
      showProblem(form, "The service cannot be reached.");
      return;
    } finally {
      form.removeAttribute("aria-busy");
    }
    // Of several requests under way, the last one counts.
    if (turn !== latest && form.hasAttribute("data-live")) return;
    const part = $(form.dataset.take, page);
    if (!part) { showProblem(form, problemOf(page)); return; }
    $(":scope > .bad", form)?.remove();
    put(form, document.adoptNode(part));
  };
  const replace = (old, part) => {
    const hadFocus = old.contains(document.activeElement);
    old.replaceWith(part);
    prepare(part.parentElement);
    if (hadFocus) { part.tabIndex = -1; part.focus({ preventScroll: true }); }
  };
  const put = (form, part) => {
    const old = form.closest(form.dataset.put) ?? $(form.dataset.put);
    const next = form.dataset.put === ".queued" ? old.nextElementSibling ?? old.previousElementSibling : null;
    replace(old, part);
    if (part.id === "saved") {
      announce(part.textContent);
      part.removeAttribute("id");
      (next && $("button:not([hidden]):not(:disabled)", next) || part).focus();
    }
    if (part.id === "result") announce($("h2", part)?.textContent ?? "");
  };

  // Rules: the scores stay, what is chosen changes.
  const decide = (radio) => {
    const result = $("#result"), rule = radio.dataset.rule, ends = radio.dataset.ends;
    for (const step of all(".step", result)) {
      step.classList.toggle("chosen", step.dataset.rules.split(" ").includes(rule));
      const isEnd = step.dataset.ends.split(" ").includes(rule), pick = $(":scope > .pick", step);
      if (pick?.type === "checkbox") pick.checked = isEnd; else if (pick) pick.hidden = isEnd;
      if (step.classList.contains("chosen")) $(":scope > details", step)?.setAttribute("open", "");
    }
    const decision = all("strong, em", $(".decision", radio.closest(".rule"))).map((one) => one.textContent);
    $("h2", result).textContent = decision.length > 1 ? `${decision[0]} and ${decision.length - 1} more`
      : ends ? decision[0] : decision[0][0].toUpperCase() + decision[0].slice(1);
    const feedback = $("#feedback");
    if (feedback) {
      feedback.elements.predicted.value = ends;
      const accept = $(".accept", feedback);
      if (accept) { accept.value = ends; accept.hidden = !ends; }
    }
    announce(`${radio.value}: ${decision.join(", ")}`);
  };

  // Words of a step: those of the label that is pointed at.
  const light = (step) => {
    const words = step?.dataset.words === undefined ? null : step.dataset.words.split(" ");
    const text = $("#read");
    if (!text) return;
    text.classList.toggle("focused", Boolean(words));
    for (const mark of all("mark", text)) mark.classList.toggle("lit", Boolean(words?.includes(mark.dataset.word)));
  };

  // The combobox: type-ahead over all labels, by the search of the service.
  const SHOWN = 12;
  const close = (box) => {
    const input = $("input[type=text]", box), list = $(".matches", box);
    list.hidden = true;
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
  };
  const activate = (box, index) => {
    const input = $("input[type=text]", box), options = all("[role=option]", box);
    if (!options.length) return;
    const active = (index + options.length) % options.length;
    options.forEach((option, each) => option.setAttribute("aria-selected", String(each === active)));
    options[active].scrollIntoView({ block: "nearest" });
    input.setAttribute("aria-activedescendant", options[active].id);
  };
  const activeIn = (box) => all("[role=option]", box).findIndex((option) => option.getAttribute("aria-selected") === "true");
  const search = delayed(async (box) => {
    const input = $("input[type=text]", box), list = $(".matches", box), query = input.value.trim();
    if (!query) { close(box); return; }
    const response = await send(api(`/taxonomy/search?limit=${SHOWN}&q=${encodeURIComponent(query.slice(0, 200))}`));
    if (!response.ok || input.value.trim() !== query) return;
    const { nodes } = await response.json();
    list.replaceChildren(...nodes.map((node, index) => {
      const option = make("li", { role: "option", id: `${list.id}-${index}`, "aria-selected": "false" });
      const above = node.path.slice(0, node.path.length - node.label.length);
      option.append(make("span", { class: "above" }, above), make("strong", {}, node.label));
      if (node.notation) option.append(" ", make("code", {}, node.notation));
      option.node = node;
      return option;
    }));
    if (!nodes.length) list.append(make("li", { class: "rest" }, "No label has this in its name."));
    list.hidden = false;
    input.setAttribute("aria-expanded", "true");
    announce(nodes.length ? `${nodes.length === SHOWN ? "At least " : ""}${nodes.length} labels` : "No label has this in its name.");
  }, 90);
  const choose = (box, option) => {
    const input = $("input[type=text]", box), added = $(".added", box);
    const item = make("li"), remove = make("button", { type: "button", "aria-label": `Remove ${option.node.label}` }, "×");
    item.append(make("input", { type: "hidden", name: "node", value: option.node.node }), make("span", {}, option.node.path), remove);
    if (!("multi" in box.dataset)) added.replaceChildren();
    added.append(item);
    input.value = "";
    close(box);
    announce(`${option.node.path} chosen`);
  };
  const comboboxKey = (event, box) => {
    const isOpen = !$(".matches", box).hidden, options = all("[role=option]", box), active = activeIn(box);
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      if (isOpen) activate(box, active < 0 && event.key === "ArrowUp" ? -1 : active + (event.key === "ArrowDown" ? 1 : -1));
      else search(box);
    } else if (event.key === "Escape" && isOpen) {
      event.preventDefault();
      close(box);
    } else if (event.key === "Enter" && isOpen && options.length) {
      event.preventDefault();
      choose(box, options[Math.max(active, 0)]);
    } else if (event.key === "Enter" && !event.target.value) {
      // A second Enter saves what was chosen; never what the first button of the form says.
      event.preventDefault();
      const form = event.target.form;
      if ($(".added li", box)) form.requestSubmit($("[name=choice][value=label]", form));
    } else if (event.key === "Enter" && event.target.value) {
      // What was typed is no label that was chosen: look for it first.
      event.preventDefault();
      search(box);
    }
  };

  // Files: what comes back is offered for saving.
  const sendFile = async (form) => {
    const state = $("#file-state");
    state.replaceChildren("Working…");
    const data = new FormData(form);
    data.set("rule", $("#try [name=other]").value.trim() || $("[name=rule]:checked")?.value || "");
    let response;
    try { response = await send(form.action, { method: "POST", body: data }); } catch { state.textContent = "The service cannot be reached."; return; }
    if (!response.ok) { state.replaceChildren(make("span", { class: "bad" }, problemOf(await parse(response)))); return; }
    const name = decodeURIComponent(response.headers.get("Content-Disposition").split("''")[1]);
    const rows = Number(response.headers.get("X-Rows"));
    const link = make("a", { href: URL.createObjectURL(await response.blob()), download: name }, name);
    state.replaceChildren(`${count(rows)} ${rows === 1 ? "text" : "texts"} labelled: `, link);
    link.focus();
  };

  // The taxonomy: children are fetched when a label is opened.
  const CHUNK = 200;
  const treeItem = (node) => {
    const item = make("li"), line = make("div", { class: "node" });
    const documents = `${count(node.training_documents)} ${node.training_documents === 1 ? "document" : "documents"}`;
    const below = node.child_count ? `${count(node.child_count)} below · ` : "";
    line.append(node.child_count ? opener(node.node, node.label) : make("span", { class: "leaf" }, node.label));
    line.append(make("span", { class: "counts" }, below + documents));
    item.append(line);
    return item;
  };
  const opener = (node, label) => make("button", { type: "button", "aria-expanded": "false", "data-open": node }, label);
  const children = async (list, node, offset) => {
    const response = await send(api(`/taxonomy/nodes/${node}?offset=${offset}&limit=${CHUNK}`));
    if (!response.ok) return;
    const answer = await response.json();
    list.append(...answer.children.map(treeItem));
    const shown = offset + answer.children.length;
    if (shown < answer.child_count) {
      const more = make("button", { type: "button", class: "more" }, `Show more (${count(answer.child_count - shown)} left)`);
      const item = make("li");
      item.append(more);
      list.append(item);
      more.addEventListener("click", async () => { item.remove(); await children(list, node, shown); });
    }
  };
  const toggle = async (button) => {
    const item = button.closest("li"), inner = $(":scope > ul", item);
    button.setAttribute("aria-expanded", String(!inner));
    if (inner) { inner.remove(); return; }
    const list = make("ul");
    item.append(list);
    await children(list, button.dataset.open, 0);
  };

  // What was just put on the page.
  const prepare = (root) => {
    for (const box of all("[data-combobox]", root)) {
      const input = $("input[type=text]", box), list = $(".matches", box);
      const aria = { role: "combobox", "aria-autocomplete": "list", "aria-expanded": "false", "aria-controls": list.id };
      for (const [name, value] of Object.entries(aria)) input.setAttribute(name, value);
    }
    for (const link of all("[data-tree] a.open", root)) link.replaceWith(opener(link.dataset.node, link.textContent));
    const polled = $("[data-poll]", root);
    if (polled) setTimeout(poll, Number(polled.dataset.poll), polled);
  };
  const poll = async (old) => {
    if (!old.isConnected) return;
    // A person in the middle of something is not disturbed.
    if (old !== document.activeElement && old.contains(document.activeElement)) { setTimeout(poll, 1000, old); return; }
    const part = $(`#${old.id}`, await parse(await send(`${location.pathname}${location.search}`)));
    if (part) replace(old, document.adoptNode(part));
  };
  const start = () => {
    prepare(document);
    $("#theme").hidden = false;
    setTheme(theme());
    const forget = $("#forget-token");
    if (forget) forget.hidden = !token.get();
    enter();
  };

  const live = delayed((form) => {
    const area = $("textarea", form);
    if (!area || area.value.trim()) submit(form);
  }, 120);
  addEventListener("submit", (event) => {
    const form = event.target;
    if (form.id === "token-form") {
      event.preventDefault();
      token.set($("#token").value.trim());
      enter();
    } else if (form.id === "file-form") {
      event.preventDefault();
      sendFile(form);
    } else if (form.dataset.take) {
      event.preventDefault();
      submit(form, event.submitter);
    }
  });
  addEventListener("input", (event) => {
    const box = event.target.closest("[data-combobox]");
    if (box) search(box);
    if (event.target.type === "range") event.target.nextElementSibling.value = Number(event.target.value).toFixed(2);
    if (event.target.hasAttribute("data-live")) live(event.target.form);
  });
  addEventListener("change", (event) => {
    if (event.target.dataset.rule !== undefined) decide(event.target);
    const form = event.target.closest("[data-send-on-change]");
    if (form) form.submit();
    if (event.target.id === "file" && event.target.files.length) sendFile(event.target.form);
  });
  addEventListener("keydown", (event) => {
    const box = event.target.closest?.("[data-combobox]");
    if (box && event.target.type === "text") comboboxKey(event, box);
    if (event.target.id === "text" && event.key === "Enter" && (event.ctrlKey || event.metaKey)) event.target.form.requestSubmit();
  });
  addEventListener("click", (event) => {
    const option = event.target.closest("[role=option]");
    if (option) choose(option.closest("[data-combobox]"), option);
    const added = event.target.closest(".added button");
    if (added) added.closest("li").remove();
    const open = event.target.closest("[data-open]");
    if (open) toggle(open);
    if (event.target.id === "theme") {
      const next = themes[(themes.indexOf(theme()) + 1) % themes.length];
      remembered.set(next);
      setTheme(next);
    }
    if (event.target.id === "forget-token") { token.set(null); location.reload(); }
    for (const box of all("[data-combobox]")) if (!box.contains(event.target)) close(box);
  });
  addEventListener("mouseover", (event) => light(event.target.closest?.(".step")));
  addEventListener("focusin", (event) => light(event.target.closest?.(".step")));
  addEventListener("paste", (event) => { if (event.target.id === "text") setTimeout(() => event.target.form.requestSubmit()); });
  // A file may be dropped anywhere on the page.
  addEventListener("dragover", (event) => { if ($("#file")) { event.preventDefault(); $(".drop").classList.add("over"); } });
  addEventListener("dragleave", () => $(".drop")?.classList.remove("over"));
  addEventListener("drop", (event) => {
    const input = $("#file");
    if (!input || !event.dataTransfer.files.length) return;
    event.preventDefault();
    $(".drop").classList.remove("over");
    input.files = event.dataTransfer.files;
    sendFile(input.form);
  });
  start();
})();
