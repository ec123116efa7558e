"use strict";
(() => {
  const ROW = 19;
  const data = JSON.parse(document.getElementById("data").textContent);
  const names = data.names.map((text) => {
    const [name, module = ""] = text.split("\u001f");
    return { name, module };
  });
  const graph = document.getElementById("graph");
  const detail = document.getElementById("detail");
  const search = document.getElementById("search");
  const found = document.getElementById("found");
  const turned = document.getElementById("turned");

  const node = (name, parent) => ({ name, parent, own: 0, all: 0, calls: [], depth: parent ? parent.depth + 1 : 0 });

  // As recorded: from the outermost call inwards. Rows come with parents first.
  const forwards = () => {
    const list = [];
    for (const [parent, name, own] of data.nodes) {
      const made = node(name, parent < 0 ? null : list[parent]);
      made.own = own;
      if (made.parent) made.parent.calls.push(made);
      list.push(made);
    }
    return list;
  };

  // From the function that faulted outwards: callers of the same function come together.
  const backwards = (list) => {
    const root = node(list[0].name, null);
    for (const leaf of list) {
      if (leaf.own <= 0 || !leaf.parent) continue;
      let place = root;
      for (let call = leaf; call.parent; call = call.parent) {
        let next = place.calls.find((known) => known.name === call.name);
        if (!next) {
          next = node(call.name, place);
          place.calls.push(next);
        }
        if (!call.parent.parent) next.own += leaf.own;
        place = next;
      }
    }
    const all = [];
    const open = [root];
    while (open.length) {
      const next = open.pop();
      all.push(next);
      open.push(...next.calls);
    }
    return all;
  };

  const sum = (list) => {
    for (const one of list) one.all = one.own;
    for (let place = list.length - 1; place > 0; place--) list[place].parent.all += list[place].all;
    for (const one of list) one.calls.sort((a, b) => b.all - a.all);
    return list;
  };

  const original = sum(forwards());
  let list = original;
  let zoomed = list[0];
  let matches = null;

  const number = (value) => Math.round(value).toLocaleString("en");
  const percent = (value) => {
    const part = list[0].all > 0 ? (value / list[0].all) * 100 : 0;
    return `${part.toFixed(part < 1 ? 2 : 1)} %`;
  };
  const full = (one) => {
    const { name, module } = names[one.name];
    return module ? `${name} (${module})` : name;
  };
  const tell = (one) =>
    `${full(one)}: ${number(one.all)} page faults, ${percent(one.all)}` +
    (one.own > 0 && one.calls.length ? `; ${number(one.own)} of them its own` : "");

  // Warm colours; the same function has the same one everywhere.
  const colour = (one) => {
    const { name, module } = names[one.name];
    if (name.startsWith("[")) return "hsl(210 30% 74%)";
    let hash = 0;
    for (const letter of module + name) hash = (hash * 31 + letter.codePointAt(0)) >>> 0;
    return `hsl(${12 + (hash % 44)} ${72 + ((hash >> 8) % 18)}% ${66 + ((hash >> 16) % 10)}%)`;
  };

  const draw = () => {
    const width = graph.clientWidth;
    const boxes = document.createDocumentFragment();
    let deepest = 0;
    const put = (one, left, part) => {
      const pixels = part * width;
      if (pixels < 0.7) return;
      deepest = Math.max(deepest, one.depth);
      const box = document.createElement("button");
      box.type = "button";
      box.className = "box";
      if (matches && matches.has(one.name)) box.classList.add("hit");
      if (one.depth < zoomed.depth) box.classList.add("outer");
      box.style.left = `${left * width}px`;
      box.style.width = `${pixels}px`;
      box.style.top = `${one.depth * ROW}px`;
      box.style.background = colour(one);
      if (pixels > 30) {
        box.classList.add("wide");
        box.textContent = names[one.name].name;
      }
      box.title = tell(one);
      box.setAttribute("role", "treeitem");
      box.setAttribute("aria-label", tell(one));
      box.addEventListener("click", () => { zoomed = one; draw(); });
      box.addEventListener("mouseenter", () => { detail.textContent = tell(one); });
      box.addEventListener("focus", () => { detail.textContent = tell(one); });
      boxes.append(box);
    };
    for (let one = zoomed.parent; one; one = one.parent) put(one, 0, 1);
    const open = [[zoomed, 0, 1]];
    while (open.length) {
      const [one, left, part] = open.pop();
      put(one, left, part);
      if (part * width < 0.7) continue;
      let at = left;
      for (const call of one.calls) {
        const share = one.all > 0 ? (part * call.all) / one.all : 0;
        open.push([call, at, share]);
        at += share;
      }
    }
    graph.replaceChildren(boxes);
    graph.style.height = `${(deepest + 1) * ROW + 1}px`;
    detail.textContent = tell(zoomed);
  };

  // Faults under the outermost boxes that match, so that none counts twice.
  const matched = () => {
    let total = 0;
    const open = [list[0]];
    while (open.length) {
      const one = open.pop();
      if (matches.has(one.name)) total += one.all;
      else open.push(...one.calls);
    }
    return total;
  };

  const look = () => {
    const text = search.value.trim();
    matches = null;
    found.textContent = "";
    if (text) {
      let fits = (name) => name.toLowerCase().includes(text.toLowerCase());
      const expression = /^\/(.+)\/$/.exec(text);
      if (expression) {
        try {
          const pattern = new RegExp(expression[1], "i");
          fits = (name) => pattern.test(name);
        } catch {
          found.textContent = "not an expression";
          draw();
          return;
        }
      }
      matches = new Set([...names.keys()].filter((place) => fits(names[place].name) || fits(names[place].module)));
      const total = matched();
      found.textContent = `${number(total)} faults, ${percent(total)}`;
    }
    draw();
  };

  const whole = () => { zoomed = list[0]; draw(); };
  document.getElementById("tools").addEventListener("submit", (event) => event.preventDefault());
  document.getElementById("reset").addEventListener("click", () => { search.value = ""; look(); whole(); });
  search.addEventListener("input", look);
  turned.addEventListener("change", () => {
    list = turned.checked ? sum(backwards(original)) : original;
    zoomed = list[0];
    look();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      if (document.activeElement === search && search.value) { search.value = ""; look(); } else whole();
    } else if (event.key === "/" && document.activeElement !== search) {
      event.preventDefault();
      search.focus();
    }
  });
  addEventListener("resize", draw);
  draw();
})();
