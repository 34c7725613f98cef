// Asks transformers.js about raw images. Reads a job as JSON on stdin: task, root and name (of the model's folder), dtype,
// images (width, height, data in base64, RGB). Writes [[{label, score}, ...], ...], or tensors as lists.
const { pipeline, env, RawImage } = require("@huggingface/transformers");

async function main() {
  const job = JSON.parse(require("fs").readFileSync(0, "utf8"));
  env.allowRemoteModels = false;
  env.localModelPath = job.root;
  const ask = await pipeline(job.task, job.name, { dtype: job.dtype });
  const images = job.images.map(
    ({ width, height, data }) => new RawImage(new Uint8ClampedArray(Buffer.from(data, "base64")), width, height, 3)
  );
  const answers = [];
  for (const image of images) {
    const answer = await ask(image, { top_k: 5 });
    answers.push(answer.tolist?.() ?? answer);
  }
  console.log(JSON.stringify(answers));
}

main();
