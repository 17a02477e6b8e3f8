// The picture of the matches: a map without tiles, or the differences of partners with the band drawn.
"use strict";

const Picture = (() => {
  let land = null;
  fetch("land.json").then((answer) => answer.json()).then((lines) => { land = lines; }, () => {});

  const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  function steps(low, high, most) {
    const raw = (high - low) / Math.max(1, most), power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= raw) || raw;
    const found = [];
    for (let at = Math.ceil(low / step) * step; at <= high + step * 1e-9; at += step) found.push(Math.abs(at) < step * 1e-9 ? 0 : at);
    return { found, digits: Math.max(0, -Math.floor(Math.log10(step) + 1e-9)) };
  }

  function range(values, ends) {
    let low = Infinity, high = -Infinity;
    for (const value of [...values, ...ends]) if (value !== null && value !== undefined) { low = Math.min(low, value); high = Math.max(high, value); }
    if (!(low <= high)) return [0, 1];
    const pad = (high - low || Math.abs(high) * 0.01 || 1) * 0.08;
    return [low - pad, high + pad];
  }

  function prepared(canvas) {
    const scale = devicePixelRatio || 1, width = canvas.clientWidth, height = canvas.clientHeight;
    if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
      canvas.width = Math.round(width * scale); canvas.height = Math.round(height * scale);
    }
    const context = canvas.getContext("2d");
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.clearRect(0, 0, width, height);
    context.font = "11px system-ui, sans-serif";
    return { context, width, height };
  }

  function axes(context, box, x, y, degrees) {
    context.strokeStyle = color("--grid"); context.fillStyle = color("--dim"); context.lineWidth = 1;
    context.textBaseline = "top"; context.textAlign = "center";
    const across = steps(x.low, x.high, Math.floor(box.width / 80)), down = steps(y.low, y.high, Math.floor(box.height / 45));
    for (const at of across.found) {
      const place = Math.round(x.of(at)) + 0.5;
      context.beginPath(); context.moveTo(place, box.top); context.lineTo(place, box.top + box.height); context.stroke();
      const text = degrees ? `${Math.abs(at).toFixed(across.digits)}°${at < 0 ? "W" : "E"}` : at.toLocaleString("en", { maximumFractionDigits: across.digits });
      context.fillText(text, place, box.top + box.height + 5);
    }
    context.textBaseline = "middle"; context.textAlign = "right";
    for (const at of down.found) {
      const place = Math.round(y.of(at)) + 0.5;
      context.beginPath(); context.moveTo(box.left, place); context.lineTo(box.left + box.width, place); context.stroke();
      const text = degrees ? `${Math.abs(at).toFixed(down.digits)}°${at < 0 ? "S" : "N"}` : at.toLocaleString("en", { maximumFractionDigits: down.digits });
      context.fillText(text, box.left - 6, place);
    }
    context.strokeStyle = color("--line"); context.strokeRect(box.left + 0.5, box.top + 0.5, box.width, box.height);
  }

  function axis(low, high, from, to) { return { low, high, of: (value) => from + (value - low) / (high - low) * (to - from) }; }

  function map(canvas, picture) {
    const { context, width, height } = prepared(canvas), streams = picture.streams.length;
    const box = { left: 52, top: 8, width: width - 62, height: height - 34 };
    const latitudes = [], longitudes = [];
    for (const point of picture.points) for (let k = 0; k < streams; k++) { latitudes.push(point[2 * k]); longitudes.push(point[2 * k + 1]); }
    let [south, north] = range(latitudes, []), [west, east] = range(longitudes, []);
    // A degree of longitude is as long as on the ground, in the middle of the map.
    const squeeze = Math.max(0.05, Math.cos((south + north) / 2 * Math.PI / 180));
    const need = (east - west) * squeeze / box.width, has = (north - south) / box.height;
    if (need > has) { const more = (need * box.height - (north - south)) / 2; south -= more; north += more; }
    else { const more = (has * box.width / squeeze - (east - west)) / 2; west -= more; east += more; }
    const x = axis(west, east, box.left, box.left + box.width), y = axis(south, north, box.top + box.height, box.top);
    axes(context, box, x, y, true);
    context.save(); context.beginPath(); context.rect(box.left, box.top, box.width, box.height); context.clip();
    const dim = color("--dim"), inks = picture.streams.map((_, k) => color(`--s${k % 6 + 1}`));
    context.strokeStyle = color("--land"); context.lineWidth = 1.2;
    for (const line of land || []) {
      context.beginPath();
      for (let k = 0; k < line.length; k += 2) context[k ? "lineTo" : "moveTo"](x.of(line[k] / 100), y.of(line[k + 1] / 100));
      context.stroke();
    }
    picture.points.forEach((point, number) => {
      context.globalAlpha = 0.25 + 0.75 * (number + 1) / picture.points.length;
      context.strokeStyle = dim; context.lineWidth = 1;
      if (streams > 1) {
        context.beginPath();
        for (let k = 0; k < streams; k++) context[k ? "lineTo" : "moveTo"](x.of(point[2 * k + 1]), y.of(point[2 * k]));
        context.stroke();
      }
      for (let k = 0; k < streams; k++) {
        context.fillStyle = inks[k];
        context.beginPath(); context.arc(x.of(point[2 * k + 1]), y.of(point[2 * k]), 3, 0, 7); context.fill();
      }
    });
    context.restore();
    return `${picture.points.length} matches on a map: ${picture.streams.join(", ")}; a line joins partners, the newest are the strongest`;
  }

  function band(canvas, picture) {
    const { context, width, height } = prepared(canvas), [first, second] = picture.axes;
    const box = { left: 62, top: 8, width: width - 72, height: height - 52 };
    const xs = picture.points.map((point) => point[0]), ys = picture.points.map((point) => point[1]);
    const [xLow, xHigh] = range(xs, [first.low, first.high]), [yLow, yHigh] = range(ys, [second.low, second.high]);
    const x = axis(xLow, xHigh, box.left, box.left + box.width), y = axis(yLow, yHigh, box.top + box.height, box.top);
    const inside = (value, low, high) => Math.min(high, Math.max(low, value));
    const corner = [first.low ?? xLow, first.high ?? xHigh, second.low ?? yLow, second.high ?? yHigh];
    context.fillStyle = color("--band");
    const left = inside(x.of(corner[0]), box.left, box.left + box.width), right = inside(x.of(corner[1]), box.left, box.left + box.width);
    const top = inside(y.of(corner[3]), box.top, box.top + box.height), bottom = inside(y.of(corner[2]), box.top, box.top + box.height);
    context.fillRect(left, top, right - left, bottom - top);
    axes(context, box, x, y, false);
    context.strokeStyle = color("--good"); context.lineWidth = 1.5; context.setLineDash([5, 4]);
    const edge = (x1, y1, x2, y2) => { context.beginPath(); context.moveTo(x1, y1); context.lineTo(x2, y2); context.stroke(); };
    if (first.low !== null) edge(left, top, left, bottom);
    if (first.high !== null) edge(right, top, right, bottom);
    if (second.low !== null) edge(left, bottom, right, bottom);
    if (second.high !== null) edge(left, top, right, top);
    context.setLineDash([]);
    context.fillStyle = color("--s1");
    picture.points.forEach((point, number) => {
      context.globalAlpha = 0.2 + 0.7 * (number + 1) / picture.points.length;
      context.beginPath(); context.arc(x.of(point[0]), y.of(point[1]), 2.6, 0, 7); context.fill();
    });
    context.globalAlpha = 1; context.fillStyle = color("--dim"); context.textAlign = "center"; context.textBaseline = "bottom";
    context.fillText(first.name, box.left + box.width / 2, height - 2);
    context.save(); context.translate(11, box.top + box.height / 2); context.rotate(-Math.PI / 2); context.fillText(second.name, 0, 4); context.restore();
    return `${picture.points.length} matches; the band is green, the newest are the strongest`;
  }

  return {
    // Draws, and returns what it shows in words.
    draw(canvas, picture) {
      if (!picture || !picture.points.length) {
        prepared(canvas);
        return picture ? "no matches yet" : "no columns of the result say where, or by how much, partners differ";
      }
      return picture.kind === "map" ? map(canvas, picture) : band(canvas, picture);
    },
  };
})();
