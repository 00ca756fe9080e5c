// Keeps the page current: after a change in the event stream it loads the same page again and
// replaces the parts that differ. It never builds HTML from data.
"use strict";

(() => {
  const main = document.getElementById("main");
  const status = document.getElementById("status");
  if (!main || !status) return;

  const say = (state, word, title) => {
    status.dataset.state = state;
    status.title = title || "";
    const at = status.querySelector(".word");
    if (at.textContent !== word) at.textContent = word;
  };

  // As on the server: one unit, rounded down.
  const ago = (ms) => {
    const secs = Math.max(0, Math.floor(ms / 1000));
    if (secs < 5) return "now";
    if (secs < 60) return secs + " s";
    if (secs < 3600) return Math.floor(secs / 60) + " min";
    if (secs < 86400) return Math.floor(secs / 3600) + " h";
    return Math.floor(secs / 86400) + " d";
  };

  const tick = () => {
    for (const time of document.querySelectorAll("time[datetime]")) {
      const at = new Date(time.dateTime);
      const text = ago(Date.now() - at);
      if (time.textContent !== text) time.textContent = text;
      time.title = at.toLocaleString();
    }
  };

  // Two parts are equal if they differ only in relative times and in what a person opened or
  // selected.
  const shape = (part) => {
    const copy = part.cloneNode(true);
    copy.classList.remove("changed");
    for (const open of [copy, ...copy.querySelectorAll("details[open]")]) open.removeAttribute("open");
    for (const time of copy.querySelectorAll("time")) {
      time.textContent = "";
      time.removeAttribute("title");
    }
    for (const row of copy.querySelectorAll(".at")) row.classList.remove("at");
    return copy.outerHTML;
  };

  const FOCUSABLE = "a[href], button, input:not([type=hidden]), select, textarea, summary";

  // The focused part, and the focused element in it.
  const focusIn = (region) => {
    const active = document.activeElement;
    const part = region.contains(active) ? active.closest("[data-key]") : null;
    if (!part) return null;
    const all = part.matches(FOCUSABLE) ? [part] : [...part.querySelectorAll(FOCUSABLE)];
    return { key: part.dataset.key, index: all.indexOf(active) };
  };

  const focusAgain = (region, was) => {
    if (!was || region.contains(document.activeElement)) return;
    const part = region.querySelector(`[data-key="${CSS.escape(was.key)}"]`);
    if (!part) return;
    const all = part.matches(FOCUSABLE) ? [part] : [...part.querySelectorAll(FOCUSABLE)];
    (all[was.index] || all[0])?.focus({ preventScroll: true });
  };

  // Details that a person opened stay open in a replaced part.
  const keepOpen = (before, part) => {
    const all = (of) => [...(of.matches("details") ? [of] : []), ...of.querySelectorAll("details")];
    const now = all(part);
    all(before).forEach((details, at) => {
      if (details.open && now[at]) now[at].open = true;
    });
  };

  const exchange = (old, fresh) => {
    const kept = new Map();
    for (const part of old.querySelectorAll("[data-key]")) kept.set(part.dataset.key, part);
    const focused = focusIn(old);
    for (const part of fresh.querySelectorAll("[data-key]")) {
      const before = kept.get(part.dataset.key);
      if (before && shape(before) === shape(part)) {
        // Moved elements would restart their animation.
        before.classList.remove("changed");
        part.replaceWith(before);
      } else {
        if (before) keepOpen(before, part);
        if (part.matches("li")) part.classList.add("changed");
      }
    }
    old.replaceWith(fresh);
    focusAgain(fresh, focused);
  };

  // A box that shows its end goes on doing so; in one that was scrolled up what is read stays in place.
  const keepPlace = (part, change) => {
    const box = part.closest("[data-scroll]");
    const [top, height] = box ? [box.scrollTop, box.scrollHeight] : [0, 0];
    change();
    if (box && top < -40) box.scrollTop = top - (box.scrollHeight - height);
  };

  const signature = shape;
  let failing = false;
  let lastGood = Date.now();

  let asking = false;
  let again = false;
  let pause = 250;
  const refresh = async () => {
    if (asking) {
      again = true;
      return;
    }
    asking = true;
    const began = performance.now();
    try {
      const answer = await fetch(location.pathname + location.search, { cache: "no-store" });
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      if (answer.status === 401 || page.querySelector("form.login")) {
        location.reload();
        return;
      }
      if (answer.ok) {
        for (const old of document.querySelectorAll("[data-live]")) {
          const fresh = page.getElementById(old.id);
          if (fresh && signature(fresh) !== signature(old)) keepPlace(old, () => exchange(old, document.adoptNode(fresh)));
        }
        tick();
      }
      failing = !answer.ok;
      if (answer.ok) lastGood = Date.now();
    } catch {
      failing = true;
    } finally {
      asking = false;
      // A page that is slow to replace is updated less often, so that the tab stays responsive.
      pause = Math.max(250, 4 * (performance.now() - began));
      show();
      if (again) {
        again = false;
        soon();
      }
    }
  };

  // Changes in quick succession cause one update.
  let due = 0;
  const soon = () => {
    if (!due) due = setTimeout(() => { due = 0; refresh(); }, pause);
  };

  // The stream. A hidden tab closes it, since browsers have few connections to one server.
  let events = null;
  let connected = false;
  // The browser closes the stream of a page that it leaves.
  let leaving = false;
  addEventListener("pagehide", () => { leaving = true; });
  addEventListener("pageshow", () => { leaving = false; });
  let cursor = main.dataset.cursor;
  const show = () => {
    const since = "Last updated " + new Date(lastGood).toLocaleTimeString();
    if (connected && !failing) say("on", "Live", "Changes are shown as they happen");
    else if (failing) say("off", "Not live", since + "; trying again");
    else say("off", "Reconnecting", since);
  };
  const concerns = (event) => {
    const { watch, issue } = main.dataset;
    if (!watch) return true;
    try {
      const { sandbox } = JSON.parse(event.data);
      return sandbox.id === watch || sandbox.issueId === issue;
    } catch {
      return true;
    }
  };
  const follow = () => {
    const from = cursor ? "?cursor=" + encodeURIComponent(cursor) : "";
    const stream = new EventSource("/v1/events" + from);
    events = stream;
    let wasLost = false;
    stream.addEventListener("open", () => {
      connected = true;
      if (wasLost || failing) soon();
      wasLost = false;
      show();
    });
    stream.addEventListener("sandbox.changed", (event) => {
      cursor = event.lastEventId;
      if (concerns(event)) soon();
    });
    stream.addEventListener("gap", soon);
    // Only a stream that does not open soon is worth a word.
    setTimeout(() => { if (events === stream) show(); }, 2000);
    stream.addEventListener("error", () => {
      if (events !== stream || leaving) return;
      wasLost = true;
      connected = false;
      show();
      if (stream.readyState === EventSource.CLOSED) {
        // Refused permanently, perhaps because the session ended: the page shows that.
        events = null;
        cursor = "";
        setTimeout(() => { if (!events && !document.hidden) { refresh(); follow(); } }, 2000);
      }
    });
  };
  // What an agent says comes in a stream of its own. The browser goes on at the last event by itself.
  const talk = document.querySelector("[data-events]")?.dataset.events;
  let words = null;
  const listen = () => {
    if (!talk || words) return;
    words = new EventSource(talk);
    // It begins behind what was said when it opens, and more may have been said since the page was made.
    words.addEventListener("open", soon);
    words.addEventListener("conversation", soon);
    words.addEventListener("gap", soon);
  };
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) {
      events?.close();
      words?.close();
      events = words = null;
      connected = false;
    } else if (!events) {
      follow();
      listen();
      soon();
    }
  });
  if (!document.hidden) {
    follow();
    listen();
  }

  // Some content causes no events, and a stream can die silently: update now and then.
  const every = 1000 * Number(main.dataset.poll || 30);
  setInterval(() => { if (!document.hidden) soon(); }, every);
  setInterval(() => { if (failing && !document.hidden) soon(); }, 2000);

  tick();
  setInterval(tick, 5000);

  // A selection submits its form.
  document.addEventListener("change", (event) => {
    if (event.target.matches("select[data-submit]")) event.target.form.requestSubmit();
  });

  // A frame that never ends is filled once the page itself has loaded.
  const fill = () => {
    for (const frame of document.querySelectorAll("iframe[data-src]")) frame.src = frame.dataset.src;
  };
  if (document.readyState === "complete") fill();
  else addEventListener("load", fill);

  // The list follows what is typed; the address says what is shown.
  document.addEventListener("input", (event) => {
    const form = event.target.form;
    if (event.target.type !== "search" || !form?.matches("[data-search]")) return;
    const fields = new URLSearchParams([...new FormData(form)].filter(([, value]) => value));
    history.replaceState(null, "", location.pathname + (fields.size ? "?" + fields : ""));
    soon();
  });

  // A command: a sign that it runs, a way to end it, and those that were run before.
  const run = document.getElementById("run");
  if (run) {
    const [line, stop] = [run.elements.line, document.getElementById("stop")];
    const [state, recent] = [document.getElementById("run-state"), document.getElementById("recent")];
    const frame = document.querySelector(`iframe[name="${run.target}"]`);
    const key = "commands";
    const before = () => {
      try { return JSON.parse(sessionStorage.getItem(key)) || []; } catch { return []; }
    };
    const offer = () => {
      recent.replaceChildren(...before().map((text) => {
        const button = document.createElement("button");
        button.type = "button";
        button.className = "quiet";
        button.textContent = button.title = text;
        button.addEventListener("click", () => { line.value = text; line.focus(); });
        return button;
      }));
      recent.hidden = !recent.children.length;
    };
    let began = 0;
    const count = () => {
      if (began) state.textContent = `Running for ${Math.floor((Date.now() - began) / 1000)} s`;
    };
    const ended = (word) => {
      began = 0;
      stop.hidden = true;
      state.textContent = word;
    };
    run.addEventListener("submit", () => {
      const text = line.value.trim();
      if (!text) return;
      sessionStorage.setItem(key, JSON.stringify([text, ...before().filter((one) => one !== text)].slice(0, 6)));
      offer();
      began = Date.now();
      stop.hidden = false;
      count();
    });
    // The output is complete when its page is.
    frame.addEventListener("load", () => { if (began) ended("Ended"); });
    // Leaving the output closes its connection, which ends the command.
    stop.addEventListener("click", () => {
      ended("Stopped");
      frame.srcdoc = frame.srcdoc;
    });
    setInterval(count, 1000);
    offer();
  }

  // Empty fields are left out of the address.
  document.addEventListener("submit", (event) => {
    if (event.target.method === "get") {
      for (const field of event.target.elements) if (!field.value) field.disabled = true;
    }
  });
  addEventListener("pageshow", () => {
    for (const field of document.querySelectorAll("form[method=get] :disabled")) field.disabled = false;
  });

  // Copies the value beside the button.
  document.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-copy]");
    if (!button) return;
    const text = document.getElementById(button.dataset.copy)?.textContent ?? "";
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(document.getElementById(button.dataset.copy));
      button.textContent = "Select and copy";
    }
    setTimeout(() => { button.textContent = "Copy"; }, 2000);
  });

  document.querySelector(".nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });

  // Keys.
  const help = document.getElementById("help");
  const places = { s: "/", d: "/deliveries", p: "/providers", r: "/drift", h: "/holds", a: "/tokens", o: "/overview" };
  let going = false;
  const step = (by) => {
    const rows = [...document.querySelectorAll("[data-row]")];
    if (!rows.length) return;
    const at = rows.indexOf(document.activeElement);
    const next = at < 0 ? (by > 0 ? 0 : rows.length - 1) : Math.min(rows.length - 1, Math.max(0, at + by));
    rows[next].focus();
    rows[next].scrollIntoView({ block: "nearest" });
  };
  document.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && event.target.matches?.("textarea[data-send]")) {
      event.target.form.requestSubmit();
    }
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const typing = event.target.matches?.("input, select, textarea");
    if (typing) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    if (going) {
      going = false;
      const place = places[event.key];
      if (place) { event.preventDefault(); location.assign(place); }
      return;
    }
    switch (event.key) {
      case "/": {
        const search = document.getElementById("search");
        if (search) { event.preventDefault(); search.focus(); search.select(); }
        break;
      }
      case "j": step(1); break;
      case "k": step(-1); break;
      case "g": going = true; break;
      case "?": help?.open ? help.close() : help?.showModal(); break;
      case "Escape":
        for (const open of document.querySelectorAll("details.action[open]")) {
          open.open = false;
          open.querySelector("summary").focus();
        }
        break;
    }
  });
})();
