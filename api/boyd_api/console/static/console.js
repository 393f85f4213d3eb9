// The console's own script: it keeps pages live with one stream per browser, and gives them keys.
"use strict";
(() => {
  const REFRESH = 800; // ms between two readings of a page, at least
  const STALE = 9000; // ms without a sign of life after which a page is out of date
  const CONFIRM = 4000; // ms after which a page is read again: no event tells that a process died or an hour has passed
  const UNCONFIRMED = 15000; // ms after which a page that could not be read again is out of date
  const RETRY = 2000; // ms before the stream is opened again
  const SIGNED_OUT = 15000; // the same when nobody is signed in: somebody may sign in, in another tab
  const page = () => document.getElementById("page");

  // ---- The stream: one tab leads and reads it; it tells the others what it hears. ----
  const channel = new BroadcastChannel("boyd");
  let heardAt = Date.now();
  let state = "connecting"; // connecting, live, lost, redis (it does not answer) or ended (signed out)

  function hear(message) {
    if (message.type === "alive") {
      heardAt = Date.now();
      const wasLive = state === "live";
      state = message.redis ? "live" : "redis";
      // What was missed is read now: before a new stream, and between reading this page and its first sign of life.
      if (message.redis && (message.isNew || !wasLive)) refreshSoon();
      else if (message.redis && !document.hidden && !isAnswering() && Date.now() - readAt > CONFIRM) refreshSoon();
    } else if (message.type === "hint") {
      heardAt = Date.now();
      if (concerns(message)) refreshSoon();
    } else if (message.type === "lost") {
      if (state !== "ended") state = "lost";
    } else if (message.type === "ended") {
      state = "ended";
    }
    showState();
  }

  function tell(message) {
    channel.postMessage(message);
    hear(message);
  }

  channel.onmessage = (event) => {
    if (event.data.type !== "hello") hear(event.data);
    else if (leads && state === "live") channel.postMessage({ type: "alive", redis: true });
  };

  let leads = false;
  function lead() {
    leads = true;
    const source = new EventSource("/console/stream");
    source.addEventListener("open", () => tell({ type: "alive", redis: true, isNew: true }));
    source.addEventListener("alive", (event) => tell({ type: "alive", redis: JSON.parse(event.data).redis }));
    source.addEventListener("hint", (event) => {
      const [kind, agent] = event.data.split(" ");
      tell({ type: "hint", kind, agent });
    });
    source.addEventListener("error", async () => {
      tell({ type: "lost" });
      if (source.readyState !== EventSource.CLOSED) return; // the browser opens it again by itself
      source.close();
      const headers = { Accept: "text/event-stream" };
      const answer = await fetch("/console/stream", { method: "HEAD", headers }).catch(() => null);
      if (answer?.status === 401) tell({ type: "ended" });
      setTimeout(lead, answer?.status === 401 ? SIGNED_OUT : RETRY);
    });
  }

  // The page of a signed link has no stream: only its times are kept true.
  if (page() && navigator.locks) navigator.locks.request("boyd-stream", () => new Promise(lead)); // held while this tab is open
  else if (page()) lead();
  channel.postMessage({ type: "hello" });

  // ---- Reading the page again. ----
  let readAt = Date.now(); // when the page was read for the last time
  let shownAt = readAt; // when that of what it shows was
  let timer = null;
  let isDue = false;
  let isReading = false;

  function concerns({ kind, agent }) {
    const shown = page();
    if (!shown || !shown.dataset.live.split(" ").includes(kind)) return false;
    return !shown.dataset.agent || shown.dataset.agent === agent || kind === "approval" || kind === "agent";
  }

  // A page that names no kinds of events stays as it is: it shows a secret once, or why a form was refused.
  const isFixed = () => page()?.dataset.live.trim() === "";

  function refreshSoon() {
    if (isFixed()) return;
    isDue = true;
    if (timer !== null || document.hidden) return;
    timer = setTimeout(refresh, Math.max(20, readAt + REFRESH - Date.now()));
  }

  function refresh() {
    timer = null;
    if (document.hidden || !page() || isAnswering() || isReading) return; // it stays due
    isDue = false;
    readAt = Date.now();
    htmx.trigger(page(), "boyd:refresh");
  }

  const readsPage = (event) => event.target === page();
  document.addEventListener("htmx:before:request", (event) => {
    if (readsPage(event)) isReading = true;
  });
  document.addEventListener("htmx:finally:request", (event) => {
    if (!readsPage(event)) return;
    isReading = false;
    if (isDue) refreshSoon();
  });
  document.addEventListener("input", () => {
    if (isDue) refreshSoon();
  });

  // A note that is being written stays as it is, and so does an open menu.
  function isAnswering() {
    const note = document.querySelector(".confirm textarea");
    return (note !== null && note.value !== note.defaultValue) || document.querySelector("details.menu[open]") !== null;
  }

  // What a person is about to confirm must not change under their finger: they get time to see it.
  const HOLD = 1500; // ms
  const version = () => document.querySelector(".confirm input[name=version]")?.value;
  let versionBefore;
  let heldUntil = 0;
  document.addEventListener("htmx:before:swap", () => (versionBefore = version()));
  document.addEventListener("htmx:after:swap", () => {
    if (!version()) return;
    if (versionBefore && version() !== versionBefore) {
      heldUntil = Date.now() + HOLD;
      setTimeout(release, HOLD);
    }
    if (Date.now() < heldUntil) hold();
  });

  const confirmButton = () => document.querySelector(".confirm button.primary");
  const sayHeld = (text) => (document.getElementById("held").textContent = text);

  // Also after each reading meanwhile, which shows the button as the server has it.
  function hold() {
    confirmButton().disabled = true;
    sayHeld("This has just changed: look at it again. The button works in a moment.");
  }

  function release() {
    const button = confirmButton();
    if (!button?.disabled || Date.now() < heldUntil) return;
    button.disabled = false;
    sayHeld("This has just changed. The button works again.");
    if (document.activeElement === document.body) button.focus(); // not away from a note
  }

  document.addEventListener("visibilitychange", () => {
    // While nobody is signed in, reading would lead away from what is shown.
    if (!document.hidden && state !== "ended" && (isDue || Date.now() - readAt > 15000)) refreshSoon();
  });
  document.addEventListener("boyd:changed", refreshSoon);
  document.addEventListener("htmx:after:swap", () => {
    shownAt = readAt;
    showTimes();
    showZone();
    showState();
  });
  document.addEventListener("htmx:error", () => setTimeout(refreshSoon, RETRY));

  // ---- What the reader has to know about the age of what is shown. ----
  function showState() {
    const place = document.getElementById("stream");
    if (!place) return;
    const silence = Date.now() - heardAt;
    const age = Date.now() - shownAt;
    let [name, text] = ["live", "live"];
    if (state === "ended") [name, text] = ["off", `off: you are signed out; as of ${span(age / 1000)} ago`];
    else if (isFixed()) [name, text] = ["fixed", `not live: as of ${span(age / 1000)} ago`];
    else if (state === "connecting" && silence < STALE) [name, text] = ["connecting", "connecting"];
    else if (state === "redis") [name, text] = ["stale", `stale ${span(age / 1000)}: Redis does not answer`];
    else if (state === "lost" || silence > STALE) [name, text] = ["stale", `stale ${span(age / 1000)}: Boyd does not answer`];
    else if (isDue && isAnswering()) [name, text] = ["fixed", "on hold: something has changed"];
    else if (age > UNCONFIRMED) [name, text] = ["stale", `stale ${span(age / 1000)}`];
    if (place.dataset.state !== name || place.textContent !== text) {
      place.dataset.state = name;
      place.textContent = text;
    }
  }

  function span(seconds) {
    const left = Math.max(0, Math.floor(seconds));
    for (const [size, name, below, small] of [[86400, "d", 3600, "h"], [3600, "h", 60, "min"], [60, "min", 1, "s"]]) {
      if (left < size) continue;
      const rest = Math.floor((left % size) / below);
      return `${Math.floor(left / size)} ${name}` + (rest && left < 10 * size ? ` ${rest} ${small}` : "");
    }
    return `${left} s`;
  }

  // Times are reckoned from the server's clock, which the reader's may differ from.
  let skew = 0;
  function showTimes() {
    const now = Date.now() + skew;
    for (const each of document.querySelectorAll("time[datetime]")) {
      if (each.title) each.title = inZone(each.title, each.dateTime);
      if ("exact" in each.dataset) {
        each.textContent = inZone(each.textContent, each.dateTime);
        continue;
      }
      const seconds = (now - Date.parse(each.dateTime)) / 1000;
      let text = seconds > -1 ? `${span(seconds)} ago` : `in ${span(-seconds)}`;
      if ("due" in each.dataset && seconds > -1) text = seconds < 2 ? "now" : `was due ${text}`;
      if ("left" in each.dataset) text = seconds < 0 ? span(-seconds) : "0 s";
      if ("lasts" in each.dataset) text = span(Math.max(seconds, 0));
      if (each.textContent !== text) each.textContent = text;
    }
  }
  // A time in UTC, behind the same one in the zone of the reader. A text that has both stays.
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  const zoned = new Intl.DateTimeFormat(undefined, { timeZoneName: "short" });
  function inZone(text, datetime) {
    const at = new Date(datetime);
    const ahead = -at.getTimezoneOffset();
    if (!ahead || !text.endsWith(" UTC")) return text;
    const local = new Date(at.getTime() + ahead * 60000).toISOString().slice(0, 19).replace("T", " ");
    const name = zoned.formatToParts(at).find((part) => part.type === "timeZoneName").value;
    return `${local} ${name} (${text.startsWith(local.slice(0, 10)) ? text.slice(11) : text})`;
  }

  function showZone() {
    for (const each of document.querySelectorAll("[data-zone]")) each[each.matches("input") ? "value" : "textContent"] = zone;
  }

  const server = Date.parse(document.querySelector("[data-at]")?.dataset.at ?? "");
  if (server) skew = server - Date.now();
  setInterval(() => {
    showTimes();
    showState();
  }, 1000);

  // ---- Keys: a key leads somewhere, or opens a confirmation; none of them acts. ----
  let pending = "";
  const isTyping = (place) => place.closest("input:not([type=checkbox]), textarea, select, [contenteditable]") !== null;

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
    if (isTyping(event.target)) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    if (document.querySelector("dialog[open]")) return;
    const key = pending ? `${pending} ${event.key}` : event.key;
    pending = "";
    if (key === "g") pending = "g";
    else if (key === "j" || key === "k") move(key === "j" ? 1 : -1);
    else if (!press(key)) return;
    event.preventDefault();
  });

  function press(key) {
    if (key === "?") {
      document.getElementById("help")?.showModal();
      return true;
    }
    const items = document.querySelectorAll("[data-item]");
    const selected = document.activeElement?.closest("[data-item]") ?? (items.length === 1 ? items[0] : null);
    const verb = { a: "approve", d: "deny", w: "withdraw" }[key];
    const link = selected?.querySelector("a[data-go]");
    if (verb && link && link.pathname.includes("/approvals/")) {
      location.assign(`${link.pathname}?answer=${verb}`);
      return true;
    }
    const found = document.querySelector(`[data-key="${CSS.escape(key)}"]`);
    if (!found) return false;
    if (found.matches("input")) found.focus();
    else found.click();
    return true;
  }

  function move(step) {
    const items = [...document.querySelectorAll("[data-item]")];
    if (!items.length) return;
    const at = items.indexOf(document.activeElement?.closest("[data-item]"));
    const next = items[at < 0 ? (step > 0 ? 0 : items.length - 1) : Math.min(items.length - 1, Math.max(0, at + step))];
    const link = next.querySelector("a[data-go]");
    link.focus();
    link.scrollIntoView({ block: "nearest" });
  }

  document.addEventListener("click", async (event) => {
    const copied = event.target.closest("[data-copy]");
    if (event.target.closest("[data-key='?']")) document.getElementById("help").showModal();
    else if (copied) {
      await navigator.clipboard.writeText(copied.dataset.copy);
      copied.textContent = "Copied";
    }
    for (const menu of document.querySelectorAll("details.menu[open]")) if (!menu.contains(event.target)) menu.open = false;
  });

  showTimes();
  showZone();
  showState();
})();
