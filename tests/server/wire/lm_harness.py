"""lm_harness.py PROGRAM ENVIRONMENT: EleutherAI's lm-evaluation-harness scores multiple-choice questions over HTTP, in
several batch sizes: the numbers do not depend on the batch, and are those of the harness's own Hugging Face backend.

lm_harness.py --hugging-face FILE: writes that backend's numbers, as in multiple_choice.json; wants torch and
transformers.
"""

import json
import os
import pathlib
import sys
import tempfile

import multiple_choice
from served import Served, program, skip


def harness():
    """The harness, of this Python or of the tests' environment."""
    os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", TOKENIZERS_PARALLELISM="false")
    try:
        import lm_eval
    except ImportError:
        python = pathlib.Path(sys.argv[2]) / "bin" / "python"
        if not python.exists() or sys.executable == str(python):
            skip("no lm-evaluation-harness: where pip reaches a package index, "
                 f"`python3 -B tests/environment.py {sys.argv[2]} lm_eval` brings it (800 MB)")
        os.execv(python, [str(python), "-B", *sys.argv])
    return lm_eval


def task_in(folder):
    file = pathlib.Path(folder) / "questions.jsonl"
    file.write_text("".join(json.dumps(one) + "\n" for one in multiple_choice.questions()), encoding="utf-8")
    return {"task": "next_line", "dataset_path": "json", "dataset_kwargs": {"data_files": {"test": str(file)}},
            "test_split": "test", "output_type": "multiple_choice", "doc_to_text": "context",
            "doc_to_choice": "endings", "doc_to_target": "label", "target_delimiter": multiple_choice.DELIMITER,
            "metric_list": [{"metric": "acc"}, {"metric": "acc_norm"}]}


def scores(lm_eval, folder, backend, batch_size, **arguments):
    """[question][ending]: the log likelihood, and whether it is the greedy one; and the accuracies."""
    found = lm_eval.simple_evaluate(model=backend, model_args=arguments, tasks=[task_in(folder)], batch_size=batch_size,
                                    log_samples=True, bootstrap_iters=0)
    samples = sorted(found["samples"]["next_line"], key=lambda sample: sample["doc_id"])
    sums = [[[float(sum_), bool(greedy)] for (sum_, greedy), in sample["resps"]] for sample in samples]
    result = found["results"]["next_line"]
    return sums, {name: result[f"{name},none"] for name in ("acc", "acc_norm")}


def check(lm_eval, server, folder):
    arguments = {"model": "tiny-python", "base_url": server.base + "/v1/completions", "tokenizer_backend": "remote",
                 "tokenized_requests": True, "max_length": 2048}
    first, accuracies = scores(lm_eval, folder, "local-completions", 1, **arguments)
    for batch_size, num_concurrent in ((8, 1), (16, 1), (4, 3)):
        again, _ = scores(lm_eval, folder, "local-completions", batch_size, num_concurrent=num_concurrent, **arguments)
        assert again == first, f"batch size {batch_size}: {again}, alone {first}"
    worst = multiple_choice.difference([[sum_ for sum_, _ in sums] for sums in first], multiple_choice.their_sums())
    print(f"the largest difference from Hugging Face's numbers is {worst:.2g} of a sum; here {accuracies}, there",
          multiple_choice.their_accuracies())
    assert worst < multiple_choice.TOLERANCE, worst
    assert accuracies == multiple_choice.their_accuracies(), accuracies


def main():
    if sys.argv[1] == "--hugging-face":
        import lm_eval
        with tempfile.TemporaryDirectory() as folder:
            sums, accuracies = scores(lm_eval, folder, "hf", 4, pretrained=str(multiple_choice.MODEL), dtype="float32",
                                      device="cpu")
        pathlib.Path(sys.argv[2]).write_text(json.dumps({"sums": sums, "accuracies": accuracies}) + "\n",
                                             encoding="utf-8")
        return
    lm_eval = harness()
    with tempfile.TemporaryDirectory() as folder, Served(program()) as server:
        check(lm_eval, server, folder)
    print("the harness gets the same numbers in every batch")


if __name__ == "__main__":
    main()
