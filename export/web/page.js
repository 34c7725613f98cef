"use strict";
// Everything happens here: a picture is decoded, resized as the package does, and run through the model.
const MOST_PIXELS = 2 ** 26; // of a picture, as the package reads them
// A module with an instruction of WebAssembly SIMD.
const SIMD = Uint8Array.from(atob("AGFzbQEAAAABBQFgAAF7AwIBAAoKAQgAQQD9D/1iCw=="), (byte) => byte.charCodeAt(0));
class Sentence extends Error {} // for whoever looks at the page
const page = {}; // about, ort, session, backend, looked, colours, stream, fault
const get = (id) => document.getElementById(id);
const tell = (textContent, className = "") => Object.assign(get("status"), { textContent, className });
const nameOf = (i) => page.about.labels?.[i] ?? `class ${i}`;
const largestOf = (values) => values.reduce((a, b) => Math.max(a, b));
const toSumOne = (values, sum = values.reduce((a, b) => a + b)) => values.map((x) => x / sum);
const dot = (a, b) => a.reduce((sum, x, i) => sum + x * b[i], 0);
const add = (a, b, share) => a.map((x, i) => x + share * b[i]);
const toUnit = (x, length = Math.hypot(...x) || 1) => x.map((value) => value / length);
const findDifference = (a, b) => a.reduce((most, x, i) => Math.max(most, Math.abs(x - b[i])), 0);
const findMiddle = (spare) => Math.floor(spare / 2) + (spare % 4 === 3); // where it begins, halves rounded to even
const count = (length) => Array.from({ length }, (_, i) => i);
const make = (tag, properties) => Object.assign(document.createElement(tag), properties);
// Of a class, as `keras_vit.images.pixels.class_colours` has them.
const colourOf = (i) => count(3).map((c) => 127.5 + 127.5 * Math.cos(2 * Math.PI * ((1 + c) / 3 + 0.6180339887 * i)));

// Preprocessing, as in predict.py.
const sinc = (x) => (x === 0 ? 1 : Math.sin(Math.PI * x) / (Math.PI * x));
const KERNELS = { // "nearest" has none
  bilinear: { reach: 1, weigh: (x) => Math.max(1 - x, 0) },
  bicubic: { reach: 2, weigh: (x) => (x < 1 ? (1.5 * x - 2.5) * x * x + 1 : ((2.5 - 0.5 * x) * x - 4) * x + 2) },
  lanczos3: { reach: 3, weigh: (x) => sinc(x) * sinc(x / 3) },
};

/** For each of `target` pixels: the first of the `source` pixels that it is made of, and the weights from there on. */
function weighPixels(source, target, kernel, antialias) {
  const scale = source / target;
  const width = antialias ? Math.max(scale, 1) : 1;
  return count(target).map((i) => {
    if (!kernel) return { first: Math.floor(Math.min((i + 0.5) * scale, source - 1)), weights: [1] };
    const centre = (i + 0.5) * scale - 0.5;
    const first = Math.max(Math.ceil(centre - kernel.reach * width), 0);
    const last = Math.min(Math.floor(centre + kernel.reach * width), source - 1);
    const weights = count(last - first + 1).map((j) => kernel.weigh(Math.abs(first + j - centre) / width));
    return { first, weights: toSumOne(weights) };
  });
}

/** Resizes the middle axis of x (outer, source, inner) within [0, 255]: Float64Array (outer, pixels.length, inner). */
function resizeAxis(x, outer, source, inner, pixels) {
  const out = new Float64Array(outer * pixels.length * inner);
  for (let o = 0, at = 0; o < outer; o++)
    for (const { first, weights } of pixels) {
      weights.forEach((weight, k) => {
        const from = (o * source + first + k) * inner;
        for (let i = 0; i < inner; i++) out[at + i] += weight * x[from + i];
      });
      at += inner;
    }
  return out.map((value) => Math.min(Math.max(value, 0), 255));
}

/** [height, width] of a picture before its middle is kept. */
function sizeBeforeCrop([height, width], { image_size, crop, crop_mode }) {
  if (crop === null) return image_size;
  const least = image_size.map((part) => Math.floor(part / crop + 1e-6));
  if (crop_mode === "squash") return least;
  const scale = Math.max(least[0] / height, least[1] / width);
  return [height, width].map((length, i) => Math.max(Math.floor(length * scale + 1e-6), least[i]));
}

/** The model's input, Float32Array (*image_size, channels), and what it has of the picture: [y, x, h, w] in [0, 1]. */
function preprocess({ data, width, height }, rules, channels) {
  const [rows, columns] = rules.image_size;
  const size = sizeBeforeCrop([height, width], rules);
  if (size[0] * size[1] > MOST_PIXELS) throw new Sentence("The picture is too narrow for this model. Choose another.");
  const weigh = (source, target) => weighPixels(source, target, KERNELS[rules.interpolation], rules.crop !== null);
  const [top, left] = [findMiddle(size[0] - rows), findMiddle(size[1] - columns)];
  const inner = channels === 1 ? 1 : 4;
  // Grey as Pillow weighs colours (ITU-R 601-2).
  const weighColours = (i) => (data[i] * 19595 + data[i + 1] * 38470 + data[i + 2] * 7471 + 0x8000) >> 16;
  let x = channels === 1 ? new Uint8Array(width * height).map((_, i) => weighColours(4 * i)) : data;
  x = resizeAxis(x, height, width, inner, weigh(width, size[1]).slice(left, left + columns));
  x = resizeAxis(x, 1, height, columns * inner, weigh(height, size[0]).slice(top, top + rows));
  const [mean, std] = [rules.mean, rules.std].map((values) => count(channels).map((c) => values[c] ?? values));
  const normalize = (i, c) => (x[i * inner + c] / 255 - mean[c]) / std[c];
  const input = Float32Array.from(count(rows * columns * channels), (i) => normalize((i / channels) | 0, i % channels));
  return { input, seen: [top / size[0], left / size[1], rows / size[0], columns / size[1]] };
}

/** The pixels of a file and a canvas of them, upright, what is transparent on white. */
async function readPicture(file, name) {
  const asStored = { imageOrientation: "from-image", premultiplyAlpha: "none", colorSpaceConversion: "none" };
  const bitmap = await createImageBitmap(file, asStored).catch(() => null);
  if (!bitmap) throw new Sentence(`${name} cannot be read as a picture, or is damaged. Choose a JPEG or PNG file.`);
  const { width, height } = bitmap;
  if (width * height > MOST_PIXELS || Math.max(width, height) > 2 ** 14)
    throw new Sentence(`${name} has ${width} x ${height} pixels, which are too many. Choose a smaller picture.`);
  const canvas = make("canvas", { width, height, className: width < 128 ? "small" : "" });
  const context = Object.assign(canvas.getContext("2d", { willReadFrequently: true }), { fillStyle: "white" });
  context.fillRect(0, 0, width, height);
  context.drawImage(bitmap, 0, 0);
  bitmap.close();
  return { pixels: context.getImageData(0, 0, width, height), canvas };
}

/** Colours of n vectors, (n, d) in a row: their first three principal components. */
function findComponents(vectors, n) {
  const ones = new Float64Array(n).fill(1);
  let columns = count(vectors.length / n).map((j) => ones.map((_, i) => vectors[(i * vectors.length) / n + j]));
  const drop = (axis) => (columns = columns.map((column) => add(column, axis, -dot(column, axis))));
  drop(toUnit(ones)); // the mean
  const components = count(3).map(() => {
    let axis = ones.map((_, i) => Math.cos(i)); // of the power method
    const turn = () => columns.reduce((sum, column) => add(sum, column, dot(column, axis)), new Float64Array(n));
    for (let step = 0; step < 40; step++) axis = toUnit(turn());
    drop(axis);
    const [low, high] = [0.01, 0.99].map((share) => axis.slice().sort()[Math.round(share * (n - 1))]);
    return axis.map((x) => (255 * (x - low)) / (high - low || 1));
  });
  return count(n).map((i) => [...components.map((values) => values[i]), 200]);
}

/** Shares of the classes, or of each alone where a picture may have several, or of a mask; a vector's similarities. */
function findProbabilities(logits, kind) {
  const cells = page.about.grid?.reduce((rows, columns) => rows * columns);
  if (kind === "patches") return ((page.colours = findComponents(logits, cells)), []);
  if (kind === "mask") {
    const classes = logits.length / cells;
    const pixels = count(cells).map((i) => logits.subarray(i * classes, (i + 1) * classes));
    const mask = pixels.map((row) => row.indexOf(largestOf(row)));
    page.colours = mask.map((i) => [...colourOf(i), 140]);
    return count(classes).map((i) => mask.filter((j) => i === j).length / cells);
  }
  if (kind === "cosine") return page.about.references.map((vector) => dot(vector, toUnit(logits)));
  if (kind === "output") return Array.from(logits);
  if (kind === "sigmoid") return Array.from(logits, (x) => 1 / (1 + Math.exp(-x)));
  const largest = largestOf(logits);
  return toSumOne(Array.from(logits, (x) => Math.exp(x - largest)));
}

/** Attention from the output to the patches, the largest 1: of a block or rolled out, of a head or the mean (0: all) */
function rollOut({ data, dims: [, blocks, heads, tokens] }, patches, readsToken, block, head) {
  const chosen = head ? [head - 1] : count(heads);
  let row = Float64Array.from(count(tokens), (i) => (readsToken ? i === 0 : i >= tokens - patches));
  for (const b of block ? [block - 1] : count(blocks).reverse()) {
    const next = row.map((x) => (block ? 0 : x / 2));
    for (const h of chosen)
      row.forEach((x, i) => {
        const share = (x / chosen.length) * (block ? 1 : 0.5);
        const from = ((b * heads + h) * tokens + i) * tokens;
        if (share) for (let j = 0; j < tokens; j++) next[j] += share * data[from + j];
      });
    row = next;
  }
  const seen = row.slice(-patches);
  return seen.map((x) => x / largestOf(seen));
}

async function fetchBytes(address, size, options) {
  const whole = await fetch(address, options).then((reply) => reply.ok && reply.arrayBuffer()).catch(() => null);
  const bytes = whole && new Uint8Array(whole);
  const fault = !bytes ? "is missing, or cannot be fetched" : size && bytes.length !== size ? "is damaged" : "";
  if (fault) throw new Sentence(`${address} ${fault}. Export the page again, and put all of its files on the server.`);
  return bytes;
}

async function openModel() {
  const { model, runtime } = page.about;
  tell(`Loading ${((runtime.bytes + model.bytes) / 1e6).toFixed(0)} MB…`);
  const offline = `ONNX Runtime Web cannot be fetched: ${runtime.script}. Go online, or export the page with --vendor.`;
  page.ort = await import("ort").catch(() => Promise.reject(new Sentence(offline)));
  const isOwn = new URL(runtime.binary, location.href).origin === location.origin; // only then it may start threads
  const threads = isOwn && window.crossOriginIsolated ? Math.min(navigator.hardwareConcurrency, 4) : 1;
  const wasmBinary = await fetchBytes(runtime.binary, runtime.bytes, { integrity: runtime.integrity });
  Object.assign(page.ort.env.wasm, { numThreads: threads, wasmBinary });
  const graph = await fetchBytes(model.file, model.bytes);
  page.session = await page.ort.InferenceSession.create(graph, { executionProviders: ["wasm"] });
  page.backend = `WebAssembly, ${threads} thread${threads > 1 ? "s" : ""}`;
}

async function runModel(input) {
  const { preprocessing, channels } = page.about;
  const tensor = new page.ort.Tensor("float32", input, [1, ...preprocessing.image_size, channels]);
  const began = performance.now();
  const { attention, ...own } = await page.session.run({ [page.session.inputNames[0]]: tensor });
  return { logits: Object.values(own)[0].data, attention: page.about.grid && attention, ms: performance.now() - began };
}

async function prove() {
  const { examples, preprocessing, channels } = page.about;
  let [levels, difference, largest] = [0, 0, 0];
  for (const { file, input: stored, logits: kept } of examples) {
    const logits = Array.isArray(kept) ? kept : new Float32Array((await fetchBytes(`examples/${kept}`)).buffer);
    const { pixels } = await readPicture(new Blob([await fetchBytes(`examples/${file}`)]), file);
    const { input } = preprocess(pixels, preprocessing, channels);
    const expected = new Float32Array((await fetchBytes(`examples/${stored}`, 4 * input.length)).buffer);
    levels = Math.max(levels, findDifference(input, expected) * largestOf([preprocessing.std].flat()) * 255);
    difference = Math.max(difference, findDifference((await runModel(input)).logits, logits));
    largest = Math.max(largest, largestOf(logits.map(Math.abs)));
  }
  const [share, allowed] = [difference / (largest || 1), page.about.model.tolerance];
  Object.assign(get("proof").dataset, { levels, difference, share });
  get("proof").textContent = `${share <= allowed ? "Yes" : "No"}. On ${examples.length} pictures the largest difference
    of the logits is ${difference.toPrecision(2)}, ${(100 * share).toPrecision(2)} % of the largest logit (allowed:
    ${100 * allowed} %); that of the pictures, decoded and resized here, ${levels.toPrecision(1)} of 255 levels.`;
}

function showAnswers(probabilities) {
  const best = [...probabilities.keys()].sort((a, b) => probabilities[b] - probabilities[a]).slice(0, 5);
  get("answers").replaceChildren();
  for (const i of best) {
    const [item, percent] = [get("answers").appendChild(make("li")), 100 * probabilities[i]];
    const value = page.about.references ? probabilities[i].toFixed(3) : `${percent.toFixed(1)} %`;
    item.append(...["", nameOf(i), value].map((textContent) => make("span", { textContent })));
    const background = page.colours ? `rgb(${colourOf(i).join(" ")} / 0.55)` : ""; // else that of the style sheet
    Object.assign(item.firstChild.style, { width: `${Math.max(percent, 0)}%`, background }); // the bar
    Object.assign(item.dataset, { label: nameOf(i), probability: probabilities[i] });
  }
  return best.length ? nameOf(best[0]) : "Three principal components";
}

/** Puts colours, of pixels or of patches, over what the model saw of the picture; the style sheet enlarges them. */
function overlay(colours, [rows, columns], seen) {
  const image = new ImageData(Uint8ClampedArray.from(colours.flat()), columns, rows);
  Object.assign(get("overlay"), { width: columns, height: rows }).getContext("2d").putImageData(image, 0, 0);
  ["top", "left", "height", "width"].forEach((side, i) => (get("overlay").style[side] = `${100 * seen[i]}%`));
}

/** Paints the class of each pixel or the components of each patch, or veils what the model does not look at. */
function showLook() {
  const kind = page.about?.probabilities;
  Object.assign(get("look"), { hidden: !page.looked, className: kind });
  get("overlay").hidden = !page.looked || !get("shown").checked;
  if (!page.looked) return;
  const { attention, seen } = page.looked;
  const [rows, columns] = page.about.grid;
  get("where").textContent = `Each colour is a ${kind === "mask" ? "class, as the bars are" : "kind of patch"}.`;
  if (page.colours) return overlay(page.colours, [rows, columns], seen);
  const [block, head] = ["block", "head"].map((id, i) => {
    const value = Object.assign(get(id), { max: attention.dims[i + 1] }).valueAsNumber;
    get(`${id}-name`).textContent = value ? `${value} of ${get(id).max}` : "all";
    return value;
  });
  const values = rollOut(attention, rows * columns, page.about.readsToken, block, head);
  overlay(Array.from(values, (value) => [20, 34, 92, 200 * (1 - value)]), [rows, columns], seen);
  const most = values.indexOf(1);
  const down = ["top", "middle", "bottom"][Math.floor((3 * Math.floor(most / columns)) / rows)];
  const across = ["left", "centre", "right"][Math.floor((3 * (most % columns)) / columns)];
  get("where").textContent = `Clear is where it looks, most of all at the ${down} ${across}.`;
}

async function classify(file, name) {
  if (!page.session) throw page.fault;
  if (!file) throw new Sentence("That is no picture. Copy one, or drop the file of one.");
  tell("Looking…");
  const { pixels, canvas } = await readPicture(file, name);
  get("picture").replaceWith(Object.assign(canvas, { id: "picture", role: "img", ariaLabel: "Your picture" }));
  [get("hint").hidden, get("frame").hidden] = [true, false];
  await new Promise((painted) => setTimeout(painted, 20));
  const { input, seen } = preprocess(pixels, page.about.preprocessing, page.about.channels);
  const { logits, attention, ms } = await runModel(input);
  const best = showAnswers(findProbabilities(logits, page.about.probabilities));
  page.looked = (attention || page.colours) && { attention, seen };
  showLook();
  tell(`${best}. Found in ${ms.toFixed(ms < 10 ? 1 : 0)} ms (${page.backend}).`);
}

function tellFault(error, message = error.message ?? error) {
  tell(error instanceof Sentence ? message : `This browser could not run the model: ${message}`, "error");
  page.fault = error;
  page.looked = get("answers").replaceChildren();
  showLook();
}

let queue = Promise.resolve(); // one after the other
const enqueue = (work) => (queue = queue.then(work).catch(tellFault).then(() => get("status").dataset.done++));

function take([file]) {
  stopCamera();
  enqueue(() => classify(file, file?.name || "The picture"));
}

function stopCamera() {
  page.stream?.getTracks().forEach((track) => track.stop());
  [page.stream, get("video").srcObject, get("video").hidden] = [null, null, true];
  get("camera").textContent = "Camera";
}

async function useCamera() {
  const [video, wanted] = [get("video"), { video: { facingMode: "environment" } }];
  if (page.stream) return enqueue(() => classify(video, "The picture").finally(stopCamera));
  get("camera").disabled = true;
  page.stream = video.srcObject = await navigator.mediaDevices?.getUserMedia(wanted).catch(() => null);
  if (!page.stream) return tell("There is no camera, or it is not allowed here. Choose a picture instead.", "error");
  await video.play();
  [video.hidden, get("camera").textContent] = [false, "Take the picture"];
}

async function start() {
  if (location.protocol === "file:") throw new Sentence("Browsers open this page from a server: keras-vit serve.");
  if (!window.WebAssembly?.validate(SIMD)) throw new Sentence("This browser is too old: it has no WebAssembly SIMD.");
  page.about = JSON.parse(new TextDecoder().decode(await fetchBytes("model.json")));
  await openModel();
  const [{ input }] = page.about.examples;
  await runModel(new Float32Array((await fetchBytes(`examples/${input}`)).buffer)); // the first run takes longer
  page.about.examples.forEach(({ file }, i) => {
    const button = get("examples").appendChild(make("button", { type: "button" }));
    button.append(make("img", { src: `examples/${file}`, alt: `Example ${i + 1}` }));
    button.onclick = async () => take([new Blob([await fetchBytes(`examples/${file}`)])]);
  });
  get("prove").disabled = false;
  tell(`Ready: ${(page.about.model.bytes / 1e6).toFixed(1)} MB, ${page.backend}. Give it a picture.`);
}

get("file").onchange = ({ target }) => target.files.length && take([...target.files]);
get("file").onclick = ({ target }) => (target.value = ""); // the same file once more is a change
get("camera").onclick = () => useCamera().finally(() => (get("camera").disabled = false));
get("prove").onclick = () => enqueue(prove);
get("block").oninput = get("head").oninput = get("shown").oninput = showLook;
document.onkeydown = ({ key }) => void (key === "Escape" && stopCamera()); // false would stop all keys
document.onpaste = ({ clipboardData }) => take([...clipboardData.files]);
document.ondragover = document.ondragleave = document.ondrop = (event) => {
  event.preventDefault();
  get("stage").classList.toggle("over", event.type === "dragover");
  if (event.type === "drop") take([...event.dataTransfer.files]);
};
enqueue(start);
