// Keeps the list current: when the event stream tells of a change, the same list is asked for
// again and only the parts that differ are exchanged. Nothing here makes HTML out of data.
"use strict";

(() => {
  const section = () => document.getElementById("live");
  const status = document.getElementById("status");
  if (!section() || !status) return;

  const say = (state, word) => {
    status.dataset.state = state;
    const at = status.querySelector(".word");
    if (at.textContent !== word) at.textContent = word;
  };

  // As the server says it: one unit, rounded down.
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
      time.textContent = ago(Date.now() - at);
      time.title = at.toLocaleString();
    }
  };

  // Two parts are the same when they differ in nothing but how long ago something was.
  const shape = (part) => {
    const copy = part.cloneNode(true);
    copy.classList.remove("changed");
    for (const time of copy.querySelectorAll("time")) {
      time.textContent = "";
      time.removeAttribute("title");
    }
    return copy.outerHTML;
  };

  const exchange = (fresh) => {
    const old = section();
    const kept = new Map();
    for (const part of old.querySelectorAll("[data-key]")) kept.set(part.dataset.key, part);
    const focused = document.activeElement?.closest("[data-key]")?.dataset.key;
    for (const part of fresh.querySelectorAll("[data-key]")) {
      const before = kept.get(part.dataset.key);
      // What is being typed stays as it is.
      const isSearch = part.dataset.key === "search";
      if (before && (isSearch || shape(before) === shape(part))) {
        // Moved elements begin their animation again.
        before.classList.remove("changed");
        part.replaceWith(before);
      } else if (part.matches("li.row")) {
        part.classList.add("changed");
      }
    }
    old.replaceWith(fresh);
    tick();
    if (focused && !fresh.contains(document.activeElement)) {
      const again = fresh.querySelector(`[data-key="${CSS.escape(focused)}"]`);
      (again?.matches("a") ? again : again?.querySelector("a, input"))?.focus({ preventScroll: true });
    }
  };

  let asking = false;
  let again = false;
  const refresh = async () => {
    if (asking) {
      again = true;
      return;
    }
    asking = true;
    try {
      const answer = await fetch("/list" + location.search, { cache: "no-store" });
      if (answer.status === 401) {
        location.reload();
        return;
      }
      if (answer.ok) {
        const page = new DOMParser().parseFromString(await answer.text(), "text/html");
        const fresh = page.getElementById("live");
        if (fresh) exchange(document.adoptNode(fresh));
      }
    } catch {
      say("off", "Offline");
    } finally {
      asking = false;
      if (again) {
        again = false;
        soon();
      }
    }
  };

  // Many changes at once are one look: at most four a second.
  let due = 0;
  const soon = () => {
    if (!due) due = setTimeout(() => { due = 0; refresh(); }, 250);
  };

  const cursor = encodeURIComponent(section().dataset.cursor);
  const follow = (from) => {
    const events = new EventSource("/v1/events" + from);
    let wasLost = false;
    events.addEventListener("open", () => {
      say("on", "Live");
      if (wasLost) soon();
      wasLost = false;
    });
    events.addEventListener("sandbox.changed", soon);
    events.addEventListener("gap", soon);
    events.addEventListener("error", () => {
      wasLost = true;
      say("off", "Reconnecting");
      if (events.readyState === EventSource.CLOSED) {
        // Refused for good, perhaps because the session ended: the list says so.
        refresh();
        setTimeout(() => follow(""), 5000);
      }
    });
  };
  follow("?cursor=" + cursor);
  tick();
  setInterval(tick, 5000);
})();
