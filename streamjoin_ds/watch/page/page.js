// The page: asks for the facts every second, and shows them. It keeps nothing that the tables do not have.
"use strict";

const EVERY_MS = 1000, QUIET_MS = 15000, KEPT = 900;
const by = (id) => document.getElementById(id);
const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const streamColor = (number) => `--s${number % 6 + 1}`;
let facts = null, seen = "", points = [], charts = [], joinId = null, isPaused = false, answeredMs = 0, seenMatch = null;

// ---------------------------------------------------------------- words

function count(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (Math.abs(value) < 1e4) return value.toLocaleString("en", { maximumFractionDigits: Math.abs(value) < 10 && value % 1 ? 1 : 0 });
  const [size, letter] = Math.abs(value) < 1e6 ? [1e3, "k"] : Math.abs(value) < 1e9 ? [1e6, "M"] : [1e9, "G"];
  return (value / size).toPrecision(3).replace(/\.?0+$/, (zeros) => zeros.startsWith(".") ? "" : zeros) + " " + letter;
}
const whole = (value) => value === null || value === undefined ? "–" : value.toLocaleString("en");
function bytes(value) {
  if (value === null || value === undefined) return "–";
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  while (Math.abs(value) >= 1000 && unit < 4) { value /= 1000; unit++; }
  return `${value.toFixed(unit && value < 100 ? 1 : 0)} ${units[unit]}`;
}
function duration(us) {
  if (us === null || us === undefined) return "–";
  if (us === 0) return "0 s";
  const sign = us < 0 ? "-" : "", size = Math.abs(us);
  if (size < 1e3) return `${sign}${size.toFixed(0)} µs`;
  if (size < 1e6) return `${sign}${(size / 1e3).toFixed(size < 1e4 ? 1 : 0)} ms`;
  if (size < 6e7) return `${sign}${(size / 1e6).toFixed(size < 1e7 ? 2 : 1)} s`;
  if (size < 3.6e9) return `${sign}${(size / 6e7).toFixed(1)} min`;
  return size < 1.728e11 ? `${sign}${(size / 3.6e9).toFixed(1)} h` : `${sign}${(size / 8.64e10).toFixed(1)} d`;
}
function moment(us) {
  if (us === null || us === undefined) return "–";
  const ms = Math.floor(us / 1000);
  return Math.abs(ms) <= 8.64e15 ? new Date(ms).toISOString().replace("T", " ").replace(/\.000Z$|Z$/, "") : "after all";
}
// Of a moment; any other text stays as it is.
const shortMoment = (text) => !/^\d{4,}-\d\d-\d\dT/.test(text) ? String(text) : text.replace("T", " ").replace(/Z$/, "").replace(/(\.\d*?)0+$/, "$1").replace(/\.$/, "");
const share = (part, all) => all ? 100 * part / all : 0;
const percent = (value) => value === 0 ? "0 %" : value < 0.01 ? "< 0.01 %" : `${value.toFixed(value < 1 ? 2 : 1)} %`;

// ---------------------------------------------------------------- elements

function element(kind, text, name) {
  const made = document.createElement(kind);
  if (text !== undefined && text !== null) made.textContent = text;
  if (name) made.className = name;
  return made;
}
function fill(table, head, rows, numbers, texts = []) {
  const top = element("tr");
  head.forEach((name, k) => { const cell = element("th", name, numbers.includes(k) ? "number" : ""); cell.scope = "col"; top.append(cell); });
  const body = rows.map((row) => {
    const line = element("tr", null, row.isNew ? "new" : "");
    row.forEach((value, k) => line.append(value instanceof Node ? value : element("td", value, numbers.includes(k) ? "number" : texts.includes(k) ? "text" : "")));
    return line;
  });
  const thead = element("thead"), tbody = element("tbody");
  thead.append(top); tbody.append(...body);
  table.replaceChildren(thead, tbody);
}

// ---------------------------------------------------------------- the parts of the page

function showState() {
  const state = by("state"), last = facts && facts.last;
  let text = "no batch yet", kind = "warn";
  const sinceMs = last ? Date.now() - last.committed_ms : 0;
  if (isPaused) [text, kind] = ["paused", "warn"];
  else if (facts && facts.has_ended) [text, kind] = ["the query has ended", "warn"];  // and the server with it
  else if (Date.now() - answeredMs > 3500) [text, kind] = ["the page's server does not answer", "bad"];
  else if (facts && facts.problem) [text, kind] = ["the tables cannot be read", "bad"];
  else if (last && sinceMs > QUIET_MS) [text, kind] = [`no batch for ${duration(sinceMs * 1000)}`, "warn"];
  else if (last) [text, kind] = ["live", "good"];
  if (state.textContent !== text) state.textContent = text;
  state.className = `state ${kind}`;
  by("problem").hidden = !(facts && facts.problem);
  if (facts && facts.problem) by("problem").textContent = facts.problem;
}

function rateOf(value) {
  // Of the last five seconds that have batches, from the end of the one before them.
  const recent = points.slice(-6);
  if (recent.length < 2) return null;
  const seconds = recent[recent.length - 1].second - recent[0].second;
  return recent.slice(1).reduce((sum, point) => sum + value(point), 0) / Math.max(1, seconds);
}

function timeAndDay(us, note) {
  const [day, time] = moment(us).split(" ");
  return [time ? time.replace(/\.\d+$/, "") : day, [time ? day : "", us === null || us === undefined ? "" : note].filter(Boolean).join(" · ")];
}

function showTiles() {
  const last = facts.last, names = Object.keys(facts.streams);
  const sum = (name) => names.reduce((total, each) => total + (facts.streams[each][name] || 0), 0);
  const read = sum("read"), late = sum("late"), rejected = sum("rejected");
  const bytesNow = facts.cells.reduce((total, cell) => total + cell.state_bytes, 0), rowsNow = facts.cells.reduce((total, cell) => total + cell.state_rows, 0);
  const cellsMs = facts.cells.reduce((most, cell) => Math.max(most, cell.duration_ms), 0);
  const held = last && last.held_by ? `held by ${last.held_by}${last.held_us !== null ? `, ${duration(last.held_us)} behind` : ""}` : "held by no silent stream";
  const waits = last && last.backlog_rows !== null && last.backlog_rows !== undefined;
  const parts = waits ? [last.backlog_bytes ? bytes(last.backlog_bytes) : "", last.backlog_us !== null ? `${duration(last.backlog_us)} ahead` : "", last.limited_by ? `limited by ${last.limited_by}` : ""].filter(Boolean) : [];
  const tiles = [
    ["rows in", `${count(rateOf((p) => names.reduce((t, n) => t + p[n], 0)))}/s`, `${whole(read)} in all`],
    ["matches", `${count(rateOf((p) => p.matches))}/s`, `${whole(facts.totals.matches)} in ${whole(facts.totals.batches)} batches`],
    ["complete before", ...timeAndDay(last && last.punctuation_us, last ? `lag ${duration(last.lag_us)}` : "")],
    ["watermark", ...timeAndDay(last && last.watermark_us, held), last && last.held_by ? "warn" : ""],
    ["late", percent(share(late, read)), `${whole(late)} rows`, share(late, read) > 1 ? "warn" : ""],
    ["rejected", percent(share(rejected, read)), `${whole(rejected)} rows`, rejected ? "warn" : ""],
    ["backlog", waits ? count(last.backlog_rows) : "–", waits ? parts.join(", ") : "not known"],
    ["last batch", last ? duration((last.batch_ms ?? cellsMs) * 1000) : "–", last ? `number ${last.batch_id}, cells ${duration(cellsMs * 1000)}${last.restarts ? `, ${last.restarts} restarts` : ""}` : ""],
    ["windows", bytes(bytesNow), `${whole(rowsNow)} rows in ${facts.cells.length} cell${facts.cells.length === 1 ? "" : "s"}`],
  ];
  if (last && last.delay_us !== null && last.delay_us !== undefined)
    tiles.push(["longest wait of a tuple", duration(last.delay_us), `bound ${duration(last.max_delay_us)}`, last.delay_us > last.max_delay_us ? "bad" : ""]);
  by("tiles").replaceChildren(...tiles.map(([label, value, note, kind]) => {
    const tile = element("div", null, `tile ${kind || ""}`);
    const number = element("div", value, "value");
    number.title = value;
    tile.append(element("div", label, "label"), number, element("div", note, "note"));
    return tile;
  }));
}

function showStreams() {
  const last = facts.last || {}, names = Object.keys(facts.streams), holder = (last.held_by || "").split("/")[0];
  const waiting = last.backlog || {};
  fill(by("streams-table"), ["stream", "rows/s", "read", "stored", "late", "late %", "rejected", "filtered", "duplicates", "null keys", "newest event time", "ahead of the watermark", "backlog", ""],
    names.map((name, k) => {
      const stream = facts.streams[name], cell = element("td"), swatch = element("i", null, "swatch");
      swatch.style.background = color(streamColor(k));
      cell.append(swatch, name);
      const note = name === holder ? `silent; holds the watermark${last.held_by !== name ? ` (${last.held_by})` : ""}` : stream.lost_offsets ? `${whole(stream.lost_offsets)} offsets lost` : "";
      return [cell, count(rateOf((p) => p[name])), ...["read", "stored", "late"].map((each) => whole(stream[each])), percent(share(stream.late || 0, stream.read || 0)),
        ...["rejected", "filtered", "duplicates", "null_keys"].map((each) => whole(stream[each])), moment(stream.largest_us), duration(stream.ahead_us),
        waiting[name] ? count(waiting[name].rows || 0) : "–", element("td", note, "warn-text")];
    }), [1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12]);
}

function showCells() {
  const cells = facts.cells, measure = by("cells-by").value, grid = by("cells-grid");
  const layout = (facts.last && facts.last.layout) || "", sides = /^\d+(x\d+)+$/.test(layout) ? layout.split("x").map(Number) : [];
  const isGrid = sides.length && sides.reduce((a, b) => a * b, 1) === cells.length;
  const columns = isGrid ? cells.length / sides[0] : Math.ceil(Math.sqrt(cells.length * 2));
  by("cells-title").textContent = `Cells: ${cells.length}${layout ? `, layout ${layout}` : ""}`;
  grid.style.gridTemplateColumns = `repeat(${Math.max(1, columns)}, minmax(${cells.length > 256 ? 8 : 18}px, 1fr))`;
  grid.classList.toggle("many", cells.length > 256);
  const shown = { state_bytes: bytes, duration_ms: (v) => duration(v * 1000) }[measure] || count;
  const most = cells.reduce((all, cell) => Math.max(all, cell[measure] || 0), 0);
  while (grid.children.length > cells.length) grid.lastChild.remove();
  while (grid.children.length < cells.length) {
    const made = element("button"); made.type = "button"; made.setAttribute("role", "gridcell"); made.tabIndex = grid.children.length ? -1 : 0; grid.append(made);
  }
  grid.dataset.columns = columns;
  cells.forEach((cell, k) => {
    const strength = most ? (cell[measure] || 0) / most : 0, square = grid.children[k];
    square.style.background = `rgba(${color("--heat")}, ${(0.04 + 0.6 * strength).toFixed(3)})`;
    square.textContent = shown(cell[measure]);
    square.setAttribute("aria-label", `cell ${cell.cell}: ${shown(cell[measure])}`);
  });
  tellCell();
}
function tellCell(square) {
  const grid = by("cells-grid");
  square = square || (grid.contains(document.activeElement) ? document.activeElement : null);
  const k = square ? [...grid.children].indexOf(square) : -1, cell = facts && facts.cells[k];
  const text = cell ? `cell ${cell.cell}: ${whole(cell.state_rows)} rows, ${bytes(cell.state_bytes)} in windows; last batch ${duration(cell.duration_ms * 1000)}, ${whole(cell.matches)} matches of ${whole(cell.candidates)} candidates, ${whole(cell.shipped_rows)} rows shipped to it`
    : facts && facts.cells.length > 1 ? "arrows or the mouse tell more of a cell" : facts && facts.cells.length ? tellOnly() : "";
  if (by("cells-told").textContent !== text) by("cells-told").textContent = text;
}
function tellOnly() {
  const cell = facts.cells[0];
  return `${bytes(cell.state_bytes)} in windows; last batch ${whole(cell.matches)} matches of ${whole(cell.candidates)} candidates`;
}

const strips = new Map();
function strip(name, own, size) {
  // The squares stay, since a thousand of them are dear to make, and change where their partitions do.
  let made = strips.get(name);
  if (!made || made.children.length !== own.length) {
    made = element("div", null, "strip");
    made.append(...own.map(() => element("i")));
    made.shown = [];
    strips.set(name, made);
  }
  made.setAttribute("role", "img");
  made.setAttribute("aria-label", `${own.length} partitions of ${name}`);
  const most = Math.max(...own.map(([, one]) => size(one)), 1), squares = [...made.children];
  own.forEach(([partition, one], k) => {
    const title = `${partition}: ${whole(size(one))}`, share = (0.06 + 0.94 * size(one) / most).toFixed(3);
    if (made.shown[k] === title + share) return;
    squares[k].style.setProperty("--share", share);
    squares[k].title = title;
    made.shown[k] = title + share;
  });
  return made;
}
function showWaiting() {
  const waiting = (facts.last && facts.last.backlog) || {}, parts = [];
  for (const [name, stream] of Object.entries(waiting)) {
    const own = Object.entries(stream.partitions || {}), size = (one) => one.rows || one.bytes || 0;
    parts.push(element("p", `${name}: ${whole(stream.rows || 0)} records${stream.bytes ? `, ${bytes(stream.bytes)}` : ""}${stream.us ? `, ${duration(stream.us)} ahead` : ""}${own.length ? `, in ${own.length} partitions` : ""}`));
    if (!own.length) continue;
    const largest = [...own].sort((a, b) => size(b[1]) - size(a[1])).slice(0, 8), table = element("table");
    fill(table, ["partition", "records", "bytes", "ahead"], largest.map(([partition, one]) => [partition, whole(one.rows || 0), bytes(one.bytes), duration(one.us)]), [1, 2, 3]);
    parts.push(strip(name, own, size), table);
  }
  if (!parts.length) parts.push(element("p", "nothing is known that was not read", "empty"));
  const devices = facts.last && facts.last.devices;
  if (devices !== null && devices !== undefined) parts.push(element("p", `${whole(devices)} devices hold their streams' clocks; ${whole(facts.last.idle_devices || 0)} became idle with the last batch`, "dim"));
  by("waiting-body").replaceChildren(...parts);
}

function showMatches() {
  const { columns, rows, picture } = facts.matches, canvas = by("picture");
  const told = Picture.draw(canvas, picture);
  canvas.setAttribute("aria-label", told);
  by("picture-told").textContent = told;
  // What people read comes first: numbers of rows are for machines, and the map has the places.
  const behind = picture && picture.kind === "map" ? /_seq$|^batch_id$|^event_time$|_(lat|lon|lng|long|latitude|longitude)(_deg)?$/i : /_seq$|^batch_id$|^event_time$/;
  const order = columns.map((_, k) => k).sort((a, b) => Number(behind.test(columns[a])) - Number(behind.test(columns[b])));
  const numbers = order.map((k, place) => rows.length && typeof rows[0][k] === "number" ? place : -1).filter((k) => k >= 0);
  const batch = columns.indexOf("batch_id");
  const lines = rows.map((row) => {
    const line = order.map((k) => row[k] === null ? "–" : typeof row[k] === "number" ? (Number.isInteger(row[k]) ? String(row[k]) : row[k].toPrecision(7).replace(/\.?0+$/, "")) : typeof row[k] === "object" ? JSON.stringify(row[k]) : shortMoment(row[k]));
    line.isNew = seenMatch !== null && row[batch] > seenMatch;
    return line;
  });
  fill(by("matches-table"), order.map((k) => columns[k]), lines, numbers);
  seenMatch = rows.length ? Math.max(...rows.map((row) => row[batch])) : seenMatch;
}

function showLate() {
  const { sample, quantiles_us: quantiles, rows } = facts.late, body = [];
  for (const [name, [half, most, nearlyAll, all]] of Object.entries(quantiles))
    body.push(element("p", `${name}: late by ${duration(half)} in the middle, ${duration(most)} for 90 %, ${duration(nearlyAll)} for 99 %, ${duration(all)} at most. A delay of ${duration(nearlyAll)} more than now would keep 99 % of them.`));
  if (!sample) body.push(element("p", "no late rows", "empty"));
  by("late-body").replaceChildren(...body);
  by("late").querySelector(".scroll").hidden = !rows.length;
  fill(by("late-table"), ["stream", "event time", "behind the newest", "row"], rows.map((row) => [row.stream, moment(row.ts), duration(row.largest_ts - row.ts), row.row]), [2], [3]);
}

function showRejects() {
  const { reasons, rows } = facts.rejects, body = [];
  if (reasons.length) {
    const table = element("table");
    fill(table, ["stream", "reason", "rows"], reasons, [2], [1]);
    body.push(table);
  } else body.push(element("p", "no rejects", "empty"));
  by("rejects-body").replaceChildren(...body);
  by("rejects").querySelector(".scroll").hidden = !rows.length;
  fill(by("rejects-table"), ["stream", "file", "line", "column", "reason", "text"], rows.map((row) => [row.stream, row.file ?? "–", row.line ?? "–", row.column ?? "–", row.reason, row.text ?? "–"]), [2], [4, 5]);
}

// ---------------------------------------------------------------- charts

function described() {
  const names = Object.keys(facts.streams), each = (value) => points.map(value);
  const rate = (value) => points.map((point, k) => k ? value(point) / Math.max(1, point.second - points[k - 1].second) : null);
  const perSecond = (v) => `${count(v)}/s`;
  return [
    { title: "Rows in", shown: perSecond, series: names.map((name, k) => [name, streamColor(k), rate((p) => p[name])]) },
    { title: "Matches", shown: perSecond, series: [["matches", "--s3", rate((p) => p.matches)]] },
    { title: "Lag", shown: (v) => duration(v === null ? null : v * 1e6), series: [["newest − complete", "--s4", each((p) => p.lag_us === null ? null : p.lag_us / 1e6)]] },
    { title: "Time of a batch", shown: (v) => duration(v === null ? null : v * 1e6), isFilled: true, series: [
      ["plan to commit", "--s2", each((p) => p.batch_ms === null ? null : p.batch_ms / p.batches / 1e3)], ["slowest cell", "--s1", each((p) => p.cells_ms / p.batches / 1e3)]] },
    { title: "Late and rejected", shown: perSecond, series: [["late", "--s5", rate((p) => p.late)], ["rejected", "--s6", rate((p) => p.rejected)]] },
    { title: "Backlog", shown: count, series: [["known, not read", "--s5", each((p) => p.backlog_rows)]] },
    { title: "Rows in windows", shown: count, isFilled: true, series: [["in all cells", "--s3", each((p) => p.state_rows)]] },
    { title: "Windows", shown: bytes, isFilled: true, series: [["bytes in all cells", "--s1", each((p) => p.state_bytes)]] },
  ];
}

const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });

function chart(wanted) {
  const card = element("div", null, "chart"), head = element("h2", wanted.title), plot = element("div", null, "plot");
  const keys = wanted.series.map(([name, ink]) => {
    const key = element("span", null, "key"), swatch = element("i", null, "swatch"), value = element("b");
    swatch.style.background = color(ink);
    key.append(swatch, `${name} `, value);
    head.append(key);
    return value;
  });
  card.append(head, plot);
  by("charts").append(card);
  const axis = { stroke: color("--dim"), font: "11px system-ui", grid: { stroke: color("--grid"), width: 1 }, ticks: { show: false } };
  const options = {
    width: plot.clientWidth, height: 150, legend: { show: false }, padding: [8, 28, 0, 4],
    cursor: { y: false, sync: { key: "page" }, points: { size: 6 } },
    scales: { y: { range: (_, low, high) => [0, high > 0 ? high * 1.08 : 1] } },
    axes: [{ ...axis, size: 26, space: 76, values: (_, ticks) => ticks.map((tick) => clock.format(tick * 1000)) }, { ...axis, size: 62, values: (_, ticks) => ticks.map((tick) => wanted.shown(tick)) }],
    series: [{}, ...wanted.series.map(([name, ink]) => ({ label: name, stroke: color(ink), width: 2, spanGaps: true, points: { show: (drawn) => drawn.data[0].length < 40, size: 4 }, fill: wanted.isFilled ? `${color(ink)}33` : undefined }))],
    hooks: { setCursor: [(drawn) => tellKeys(drawn, keys, wanted.shown)] },
  };
  const drawn = new uPlot(options, [[], ...wanted.series.map(() => [])], plot);
  return { drawn, plot, keys, shown: wanted.shown };
}
function tellKeys(drawn, keys, shown) {
  const at = drawn.cursor.idx ?? drawn.data[0].length - 1;
  keys.forEach((key, k) => { const value = at >= 0 ? drawn.data[k + 1][at] : null; key.textContent = shown(value); });
}
function showCharts() {
  const wanted = described();
  if (charts.length !== wanted.length || charts.streams !== Object.keys(facts.streams).join()) {
    charts.forEach(({ drawn }) => drawn.destroy());
    by("charts").replaceChildren();
    charts = wanted.map(chart);
    charts.streams = Object.keys(facts.streams).join();
  }
  const seconds = points.map((point) => point.second);
  wanted.forEach(({ series }, k) => {
    charts[k].drawn.setData([seconds, ...series.map(([, , values]) => values)]);
    tellKeys(charts[k].drawn, charts[k].keys, charts[k].shown);
  });
}
function fit() { charts.forEach(({ drawn, plot }) => drawn.setSize({ width: plot.clientWidth, height: 150 })); if (facts) showMatches(); }

// ---------------------------------------------------------------- asking

// An answer has the parts that have changed since the one whose `seen` was sent with the question.
function take(answer) {
  const merged = { ...facts, ...answer }, id = merged.join && merged.join.id;
  const isOther = id !== joinId || (facts && merged.totals.batches < facts.totals.batches);
  seen = answer.seen;
  if (isOther) { points = []; joinId = id; seenMatch = null; seen = ""; }
  if (answer.points) {
    const known = new Map(points.map((point) => [point.second, point]));
    for (const row of answer.points) { const point = Object.fromEntries(answer.columns.map((name, k) => [name, row[k]])); known.set(point.second, point); }
    points = [...known.values()].sort((a, b) => a.second - b.second).slice(-KEPT);
  }
  facts = merged;
}
const SHOWN = [
  [showTiles, ["totals", "streams", "last", "cells", "points"]], [showStreams, ["streams", "last", "points"]], [showCells, ["cells", "last"]],
  [showWaiting, ["last"]], [showCharts, ["points"]], [showMatches, ["matches"]], [showLate, ["late"]], [showRejects, ["rejects"]],
];
function show(changed = facts) {
  showState();
  if (!facts || !facts.join) return;
  document.title = `${facts.join.name} · streamjoin`;
  by("name").textContent = facts.join.name;
  by("condition").textContent = `${facts.join.how === "inner" ? "" : `${facts.join.how} join · `}${facts.join.on.join(" AND ") || "no condition"} · within ${facts.join.window}`;
  for (const [part, names] of SHOWN) if (names.some((name) => name in changed)) part();
}
async function ask() {
  if (!isPaused && !document.hidden) {
    try {
      const after = points.length ? points[points.length - 1].second - 2 : 0;
      const answer = await fetch(`facts?after=${Math.max(0, after)}&seen=${seen}`, { signal: AbortSignal.timeout(5000) });
      if (answer.status === 401) location.reload();
      if (answer.ok) { answeredMs = Date.now(); const told = await answer.json(); take(told); show(told); }
    } catch { /* the next question comes in a second */ }
  }
  if (isPaused || document.hidden) answeredMs = Date.now();
  showState();
  setTimeout(ask, EVERY_MS);
}

// ---------------------------------------------------------------- keys

function theme(name) {
  document.documentElement.dataset.theme = name;
  by("theme").textContent = name === "dark" ? "Light" : "Dark";
  charts.forEach(({ drawn }) => drawn.destroy());
  charts = [];
  by("charts").replaceChildren();
  if (facts) show();
}
function flipTheme() {
  const name = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
  try { localStorage.setItem("theme", name); } catch { /* a browser may not let pages keep anything */ }
  theme(name);
}
function pause() { isPaused = !isPaused; by("pause").setAttribute("aria-pressed", isPaused); by("pause").textContent = isPaused ? "Go on" : "Pause"; showState(); }
const PARTS = ["tiles", "charts", "streams", "cells", "matches", "late", "rejects"];
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.altKey || event.metaKey || event.target.tagName === "SELECT") return;
  const part = PARTS[Number(event.key) - 1];
  if (part) { const goal = by(part); goal.focus({ focusVisible: true }); goal.scrollIntoView({ block: "start" }); }
  else if (event.key === "p") pause();
  else if (event.key === "t") flipTheme();
  else if (event.key === "?") by("keys").showModal();
});
by("cells-grid").addEventListener("keydown", (event) => {
  const squares = [...event.currentTarget.children], columns = Number(event.currentTarget.dataset.columns), at = squares.indexOf(document.activeElement);
  const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -columns, ArrowDown: columns }[event.key], goal = squares[at + step];
  if (step === undefined || !goal) return;
  event.preventDefault();
  squares[at].tabIndex = -1; goal.tabIndex = 0; goal.focus();
});
by("cells-grid").addEventListener("focusin", (event) => tellCell(event.target));
by("cells-grid").addEventListener("mouseover", (event) => { if (event.target.tagName === "BUTTON") tellCell(event.target); });
by("cells-by").addEventListener("change", () => facts && showCells());
by("pause").addEventListener("click", pause);
by("theme").addEventListener("click", flipTheme);
by("help").addEventListener("click", () => by("keys").showModal());
addEventListener("resize", fit);

let kept = null;
try { kept = localStorage.getItem("theme"); } catch { /* as above */ }
theme(kept || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light"));
answeredMs = Date.now();
ask();
