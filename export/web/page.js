"use strict";
// Everything happens here: the picture is decoded, resized as the package does, and run through the model.
const get = (id) => document.getElementById(id);
const MOST_PIXELS = 2 ** 26; // as the package reads pictures
const TOP = 5;
// A module with one instruction of WebAssembly SIMD.
const SIMD = [0, 97, 115, 109, 1, 0, 0, 0, 1, 5, 1, 96, 0, 1, 123, 3, 2, 1, 0, 10, 10, 1, 8, 0, 65, 0, 253, 15, 253, 98, 11];
class Sentence extends Error {} // for whoever looks at the page

// Preprocessing, as in predict.py.
const sinc = (x) => (x === 0 ? 1 : Math.sin(Math.PI * x) / (Math.PI * x));
const KERNELS = {
  nearest: null,
  bilinear: { reach: 1, weigh: (x) => Math.max(1 - Math.abs(x), 0) },
  bicubic: {
    reach: 2,
    weigh: (signed) => {
      const x = Math.abs(signed);
      return x < 1 ? (1.5 * x - 2.5) * x * x + 1 : x < 2 ? ((2.5 - 0.5 * x) * x - 4) * x + 2 : 0;
    },
  },
  lanczos3: { reach: 3, weigh: (x) => (Math.abs(x) < 3 ? sinc(x) * sinc(x / 3) : 0) },
};

/** For each of `target` pixels: the first of `source` pixels that it is made of, and the weights of it and the next. */
function weighPixels(source, target, kernel, antialias) {
  const scale = source / target;
  const width = antialias ? Math.max(scale, 1) : 1;
  return Array.from({ length: target }, (_, i) => {
    if (!kernel) return { first: Math.floor(Math.min((i + 0.5) * scale, source - 1)), weights: [1] };
    const centre = (i + 0.5) * scale - 0.5;
    const first = Math.max(Math.ceil(centre - kernel.reach * width), 0);
    const last = Math.min(Math.floor(centre + kernel.reach * width), source - 1);
    const weights = Array.from({ length: last - first + 1 }, (_, j) => kernel.weigh((first + j - centre) / width));
    const total = weights.reduce((a, b) => a + b);
    return { first, weights: weights.map((weight) => weight / total) };
  });
}

/** Resizes the middle axis of x (outer, source, inner): Float64Array (outer, pixels.length, inner). */
function resizeAxis(x, outer, source, inner, pixels) {
  const out = new Float64Array(outer * pixels.length * inner);
  let at = 0;
  for (let o = 0; o < outer; o++) {
    for (const { first, weights } of pixels) {
      weights.forEach((weight, k) => {
        const from = (o * source + first + k) * inner;
        for (let i = 0; i < inner; i++) out[at + i] += weight * x[from + i];
      });
      at += inner;
    }
  }
  return out;
}

/** [height, width] of the picture before its middle is kept. */
function sizeBeforeCrop([height, width], { image_size, crop, crop_mode }) {
  const least = image_size.map((part) => Math.floor(part / crop + 1e-6));
  if (crop_mode === "squash") return least;
  const scale = Math.max(least[0] / height, least[1] / width);
  return [height, width].map((length, i) => Math.max(Math.floor(length * scale + 1e-6), least[i]));
}

/** Where the middle begins, halves rounded to even. */
function findMiddle(length, part) {
  const half = Math.floor((length - part) / 2);
  return half + ((length - part) % 2) * (half % 2);
}

/** The picture's numbers (height, width, channels): colours, or grey as Pillow weighs them (ITU-R 601-2). */
function takeChannels({ data, width, height }, channels) {
  const x = new Uint8Array(width * height * channels);
  for (let i = 0, at = 0; i < data.length; i += 4) {
    if (channels === 1) x[at++] = (data[i] * 19595 + data[i + 1] * 38470 + data[i + 2] * 7471 + 0x8000) >> 16;
    else for (let c = 0; c < 3; c++) x[at++] = data[i + c];
  }
  return x;
}

/** The model's input, Float32Array (*image_size, channels), and `seen`, the part of the picture in it, in [0, 1]. */
function preprocess(pixels, rules, channels) {
  const [rows, columns] = rules.image_size;
  const size = rules.crop === null ? rules.image_size : sizeBeforeCrop([pixels.height, pixels.width], rules);
  if (size[0] * size[1] > MOST_PIXELS) throw new Sentence("The picture is too narrow for this model. Choose another.");
  const [down, across] = [[pixels.height, size[0]], [pixels.width, size[1]]].map(([source, target]) =>
    weighPixels(source, target, KERNELS[rules.interpolation], rules.crop !== null));
  const [top, left] = [findMiddle(size[0], rows), findMiddle(size[1], columns)];
  let x = takeChannels(pixels, channels);
  x = resizeAxis(x, pixels.height, pixels.width, channels, across.slice(left, left + columns));
  x = resizeAxis(x, 1, pixels.height, columns * channels, down.slice(top, top + rows));
  const [mean, std] = [rules.mean, rules.std].map((values) => [values].flat());
  const input = Float32Array.from(x, (value, i) => {
    const c = i % channels;
    return (value / 255 - mean[c % mean.length]) / std[c % std.length];
  });
  return { input, seen: [top / size[0], left / size[1], rows / size[0], columns / size[1]] };
}

/** The pixels of a file, upright, what is transparent on white. */
async function readPicture(file, name) {
  let bitmap;
  const canvas = document.createElement("canvas");
  try {
    const asStored = { imageOrientation: "from-image", premultiplyAlpha: "none", colorSpaceConversion: "none" };
    bitmap = await createImageBitmap(file, asStored);
  } catch {
    throw new Sentence(`${name} cannot be read as a picture: it is damaged, or of a kind that this browser does not know. Choose a JPEG or PNG file.`);
  }
  const { width, height } = bitmap;
  try {
    if (width * height > MOST_PIXELS) throw new Sentence("");
    Object.assign(canvas, { width, height });
    const context = canvas.getContext("2d", { willReadFrequently: true });
    context.fillStyle = "white";
    context.fillRect(0, 0, width, height);
    context.drawImage(bitmap, 0, 0);
    return { pixels: context.getImageData(0, 0, width, height), canvas };
  } catch {
    throw new Sentence(`${name} has ${width} x ${height} pixels, which are too many. Choose a smaller picture.`);
  } finally {
    bitmap.close();
  }
}

/** Shares of the classes, or of each class alone where a picture may have several. */
function findProbabilities(logits, kind) {
  if (kind === "sigmoid") return Array.from(logits, (x) => 1 / (1 + Math.exp(-x)));
  const largest = logits.reduce((a, b) => Math.max(a, b));
  const powers = Array.from(logits, (x) => Math.exp(x - largest));
  const total = powers.reduce((a, b) => a + b);
  return powers.map((x) => x / total);
}

/**
 * Attention from the output to the patches (rows * columns), the largest 1: over all blocks, each with the identity of
 * its residual connection (attention rollout), or of one block; of one head, or the mean of all. 0 stands for all.
 */
function rollOut({ data, dims: [, blocks, heads, tokens] }, patches, block, head) {
  const chosen = head ? [head - 1] : Array.from({ length: heads }, (_, i) => i);
  let row = new Float64Array(tokens).fill(tokens > patches ? 0 : 1 / tokens);
  if (tokens > patches) row[0] = 1; // the class token
  for (let b = block ? block - 1 : blocks - 1; b >= (block ? block - 1 : 0); b--) {
    const next = block ? new Float64Array(tokens) : row.map((x) => x / 2);
    for (const h of chosen) {
      row.forEach((x, i) => {
        const from = ((b * heads + h) * tokens + i) * tokens;
        const share = (x / chosen.length) * (block ? 1 : 0.5);
        if (share) for (let j = 0; j < tokens; j++) next[j] += share * data[from + j];
      });
    }
    row = next;
  }
  const seen = row.slice(-patches);
  const largest = seen.reduce((a, b) => Math.max(a, b));
  return seen.map((x) => x / largest);
}

// The page.
const page = { about: null, ort: null, session: null, backend: "", looked: null, stream: null };

function tell(text, isError = false) {
  get("status").textContent = text;
  get("status").classList.toggle("error", isError);
}

function tellError(error) {
  const sentence = error instanceof Sentence;
  if (!sentence) console.error(error);
  tell(sentence ? error.message : `This browser could not run the model: ${error.message || error}`, true);
}

/** The bytes of a file of the page; `show` is told how many have come. */
async function fetchBytes(address, size, options = {}, show = () => {}) {
  const again = "Export the page again, or look whether all of its files are on the server.";
  const response = await fetch(address, options).catch(() => null);
  if (!response) throw new Sentence(`${address} cannot be fetched, or is not the file that it should be. ${again}`);
  if (!response.ok) throw new Sentence(`${address} is missing: the server answered ${response.status}. ${again}`);
  const parts = [];
  let bytes = 0;
  for (const reader = response.body.getReader(); ; ) {
    const { done, value } = await reader.read();
    if (done) break;
    parts.push(value);
    show((bytes += value.length) / size);
  }
  if (size && bytes !== size) throw new Sentence(`${address} is damaged: ${bytes} of ${size} bytes came. ${again}`);
  return new Uint8Array(await new Blob(parts).arrayBuffer());
}

async function hasFastGpu() {
  const adapter = await navigator.gpu?.requestAdapter().catch(() => null);
  return Boolean(adapter?.features.has("shader-f16"));
}

async function openModel({ backend, file, bytes }) {
  if (backend === "webgpu" && !(await hasFastGpu())) throw new Sentence("This browser has no WebGPU with shader-f16.");
  const { script, binary, bytes: length, binary_integrity: integrity } = page.about.runtime[backend];
  const ort = await import(`ort-${backend}`).catch(() => {
    throw new Sentence(`ONNX Runtime Web cannot be fetched from ${script}. Go online, or export the page with --vendor.`);
  });
  const own = new URL(binary, location.href).origin === location.origin;
  const threads = own && window.crossOriginIsolated ? Math.min(navigator.hardwareConcurrency || 1, 4) : 1;
  const whole = length + bytes;
  ort.env.wasm.numThreads = threads;
  ort.env.wasm.wasmBinary = await fetchBytes(binary, length, { integrity }, (part) => showProgress((part * length) / whole));
  const model = await fetchBytes(file, bytes, {}, (part) => showProgress((length + part * bytes) / whole));
  page.session = await ort.InferenceSession.create(model, { executionProviders: [backend] });
  page.ort = ort;
  const words = { wasm: `WebAssembly, ${threads} thread${threads > 1 ? "s" : ""}`, webgpu: "WebGPU" };
  page.backend = words[backend];
}

function showProgress(part) {
  get("progress").hidden = part === null;
  if (part !== null) get("progress").value = part;
}

/** {logits, attention or null, ms} of an input. */
async function runModel(input) {
  const [rows, columns] = page.about.preprocessing.image_size;
  const { session, ort } = page;
  const tensor = new ort.Tensor("float32", input, [1, rows, columns, page.about.channels]);
  const began = performance.now();
  const outputs = await session.run({ [session.inputNames[0]]: tensor });
  const ms = performance.now() - began;
  const { attention } = outputs;
  const logits = await outputs[session.outputNames.find((name) => name !== "attention")].getData();
  const looked = attention && page.about.grid ? { data: await attention.getData(), dims: attention.dims } : null;
  return { logits, looked, ms };
}

const nameOf = (i) => page.about.labels?.[i] ?? `class ${i}`;

function makeElement(tag, properties, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

function showAnswers(probabilities) {
  const best = Array.from(probabilities.keys()).sort((a, b) => probabilities[b] - probabilities[a]).slice(0, TOP);
  get("answers").replaceChildren(...best.map((i) => {
    const percent = `${(100 * probabilities[i]).toFixed(1)} %`;
    const bar = makeElement("span", { className: "bar" });
    bar.style.width = percent.replace(" ", "");
    const item = makeElement("li", {}, bar, makeElement("span", {}, nameOf(i)), makeElement("span", {}, percent));
    item.dataset.label = nameOf(i);
    item.dataset.probability = probabilities[i];
    return item;
  }));
  return best[0];
}

function showPicture(canvas) {
  const picture = get("picture");
  const scale = Math.min(1, 1024 / Math.max(canvas.width, canvas.height));
  picture.width = Math.max(1, Math.round(canvas.width * scale));
  picture.height = Math.max(1, Math.round(canvas.height * scale));
  picture.classList.toggle("small", picture.width < 128);
  picture.getContext("2d").drawImage(canvas, 0, 0, picture.width, picture.height);
  canvas.width = canvas.height = 0; // its memory
  get("hint").hidden = true;
  get("frame").hidden = false;
  get("stage").classList.add("full");
}

/** Darkens what the model does not look at: a pixel per patch, which the style sheet enlarges. */
function showLook() {
  get("look").hidden = !page.looked;
  get("overlay").hidden = !page.looked || !get("shown").checked;
  if (!page.looked) return;
  const { attention, seen } = page.looked;
  const [rows, columns] = page.about.grid;
  const [block, head] = [Number(get("block").value), Number(get("head").value)];
  [, get("block").max, get("head").max] = attention.dims;
  get("block-name").textContent = block ? `${block} of ${attention.dims[1]}` : "all (rollout)";
  get("head-name").textContent = head ? `${head} of ${attention.dims[2]}` : "mean of all";
  const values = rollOut(attention, rows * columns, block, head);
  const overlay = Object.assign(get("overlay"), { width: columns, height: rows });
  const veil = new ImageData(columns, rows);
  values.forEach((value, i) => (veil.data[4 * i + 3] = Math.round(216 * (1 - value))));
  overlay.getContext("2d").putImageData(veil, 0, 0);
  ["top", "left", "height", "width"].forEach((side, i) => (overlay.style[side] = `${100 * seen[i]}%`));
  const most = values.indexOf(1);
  const third = (at, length, words) => words[Math.floor((3 * at) / length)];
  const down = third(Math.floor(most / columns), rows, ["top", "middle", "bottom"]);
  get("where").textContent = `Bright is where it looks, most of all at the ${down} ${third(most % columns, columns, ["left", "centre", "right"])}.`;
}

async function classify(file, name) {
  if (!page.session) throw new Sentence("The model is not there yet. Try again when it is loaded.");
  tell("Looking…");
  const { pixels, canvas } = await readPicture(file, name);
  showPicture(canvas);
  await new Promise((painted) => setTimeout(painted, 20));
  const { input, seen } = preprocess(pixels, page.about.preprocessing, page.about.channels);
  const { logits, looked, ms } = await runModel(input);
  const best = showAnswers(findProbabilities(logits, page.about.probabilities));
  page.looked = looked && { attention: looked, seen };
  showLook();
  get("status").dataset.ms = ms;
  tell(`${nameOf(best)}. Found in ${ms.toFixed(ms < 10 ? 1 : 0)} ms (${page.backend}).`);
}

const differ = (a, b) => a.reduce((most, x, i) => Math.max(most, Math.abs(x - b[i])), 0);

async function prove() {
  const { examples, preprocessing, channels, models } = page.about;
  let [levels, difference, largest] = [0, 0, 0];
  const std = Math.max(...[preprocessing.std].flat());
  for (const { file, input: stored, logits } of examples) {
    const bytes = await fetchBytes(`examples/${file}`);
    const { pixels } = await readPicture(new Blob([bytes]), file);
    const { input } = preprocess(pixels, preprocessing, channels);
    const expected = new Float32Array((await fetchBytes(`examples/${stored}`, 4 * input.length)).buffer);
    levels = Math.max(levels, differ(input, expected) * std * 255);
    difference = Math.max(difference, differ((await runModel(input)).logits, logits));
    largest = logits.reduce((most, x) => Math.max(most, Math.abs(x)), largest);
  }
  const [share, allowed] = [difference / (largest || 1), models[page.chosen].tolerance];
  Object.assign(get("proof").dataset, { levels, difference, share });
  get("proof").textContent =
    `${share <= allowed ? "Yes" : "No"}: on ${examples.length} pictures the logits differ by at most ${difference.toPrecision(2)}, ` +
    `${(100 * share).toFixed(2)} % of the largest (allowed: ${100 * allowed} %), and the pictures, decoded and resized here, by ` +
    `${levels.toPrecision(2)} of 255 levels.`;
}

let queue = Promise.resolve(); // one picture after the other
function enqueue(work) {
  queue = queue.then(work).catch(tellError).then(() => (document.body.dataset.done = Number(document.body.dataset.done ?? 0) + 1));
}

function take(files, missing) {
  const file = Array.from(files ?? []).find((each) => each.type.startsWith("image/")) ?? files?.[0];
  stopCamera();
  enqueue(async () => {
    if (!file) throw new Sentence(missing);
    await classify(file, file.name || "The picture");
  });
}

function stopCamera() {
  page.stream?.getTracks().forEach((track) => track.stop());
  page.stream = get("video").srcObject = null;
  get("video").hidden = true;
  get("frame").hidden = get("hint").hidden === false;
  get("camera").textContent = "Use the camera";
}

async function useCamera() {
  const video = get("video");
  if (page.stream) {
    const canvas = makeElement("canvas", { width: video.videoWidth, height: video.videoHeight });
    canvas.getContext("2d").drawImage(video, 0, 0);
    stopCamera();
    const picture = await new Promise((done) => canvas.toBlob(done));
    return enqueue(() => classify(picture, "The picture"));
  }
  try {
    page.stream = video.srcObject = await navigator.mediaDevices.getUserMedia({ video: { facingMode: "environment" } });
    await video.play();
    [video.hidden, get("frame").hidden] = [false, true];
    get("camera").textContent = "Take the picture";
  } catch {
    stopCamera();
    tell("The camera cannot be used: there is none, or the browser was not allowed to. Choose a picture instead.", true);
  }
}

function listen() {
  const stage = get("stage");
  get("file").addEventListener("change", ({ target }) => {
    if (target.files.length) take(target.files);
    target.value = "";
  });
  document.addEventListener("paste", ({ clipboardData }) => take(clipboardData?.files, "What was pasted is no picture. Copy one first."));
  for (const kind of ["dragover", "dragleave", "drop"]) {
    document.addEventListener(kind, (event) => {
      event.preventDefault();
      stage.classList.toggle("over", kind === "dragover");
      if (kind === "drop") take(event.dataTransfer.files, "What was dropped is no file. Drop a picture from a folder.");
    });
  }
  document.addEventListener("keydown", ({ key }) => key === "Escape" && page.stream && stopCamera());
  get("camera").addEventListener("click", useCamera);
  get("prove").addEventListener("click", () => enqueue(prove));
  for (const id of ["block", "head", "shown"]) get(id).addEventListener("input", showLook);
}

function listExamples() {
  get("examples").replaceChildren(...page.about.examples.map(({ file }, i) => {
    const button = makeElement("button", { type: "button" }, makeElement("img", { src: `examples/${file}`, alt: `Example ${i + 1}` }));
    button.addEventListener("click", () => enqueue(async () => classify(new Blob([await fetchBytes(`examples/${file}`)]), file)));
    return button;
  }));
}

async function start() {
  listen();
  if (location.protocol === "file:") throw new Sentence("A browser opens this page only from a server: keras-vit serve DIST, or python -m http.server in this folder.");
  if (!window.WebAssembly || !WebAssembly.validate(Uint8Array.from(SIMD))) throw new Sentence("This browser has no WebAssembly SIMD, which the model needs. Open the page in a newer browser.");
  tell("Loading the model…");
  page.about = JSON.parse(new TextDecoder().decode(await fetchBytes("model.json")));
  for (const [i, model] of page.about.models.entries()) {
    const last = i === page.about.models.length - 1;
    await openModel(model).then(() => (page.chosen = i), (error) => { if (last) throw error; });
    if (page.session) break;
  }
  listExamples();
  get("prove").disabled = false;
  const bytes = page.about.models[page.chosen].bytes / 1e6;
  tell(`Ready: ${bytes.toFixed(1)} MB, ${page.backend}. Give it a picture.`);
}

enqueue(() => start().finally(() => showProgress(null)));
