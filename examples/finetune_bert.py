# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Fine-tunes a BERT of Hugging Face with block-sparse encoder matrices.

"""Fine-tunes a BERT to tell the lines of two kinds of file apart.

    python3 examples/finetune_bert.py docs/*.md --other lib/*/*.cpp --output tuned

The model and its tokenizer come from `--model`, a folder of `save_pretrained`;
without one a small random BERT and a WordPiece tokenizer of these texts are
made. The blocks of the largest norms are kept, the patterns go on learning, and
the result is a model that transformers loads.
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path
from typing import Any

import torch
from tokenizers import (
    Tokenizer,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    PreTrainedTokenizerFast,
)

import sparse_opt.torch
from sparse_opt import huggingface

TOKENS, BATCH = 32, 16
ENCODER = r"encoder.layer.*\.(query|key|value|dense).weight$"


def lines_of(files: list[Path]) -> list[str]:
    """Returns the lines that have words."""
    texts = (file.read_text(errors="replace") for file in files)
    lines = (line.strip() for text in texts for line in text.splitlines())
    return [line for line in lines if len(line.split()) > 3]


def small_tokenizer(lines: list[str]) -> Any:
    """Returns a WordPiece tokenizer of these lines."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(
        vocab_size=1000, special_tokens=special, show_progress=False
    )
    tokenizer.train_from_iterator(lines, trainer)
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]"
    )


def small_model() -> BertForSequenceClassification:
    return BertForSequenceClassification(
        BertConfig(
            vocab_size=1000, hidden_size=64, num_hidden_layers=2,
            num_attention_heads=2, intermediate_size=128,
            max_position_embeddings=TOKENS,
        )
    )  # fmt: skip


def train_step(model: Any, optimizer: Any, batch: Any) -> Any:
    optimizer.zero_grad()
    loss = model(**batch).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return loss.detach()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--other", nargs="+", type=Path, required=True)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--density", type=float, default=0.5)
    options = parser.parse_args()

    random.seed(0)
    torch.manual_seed(0)
    examples = [(x, 0) for x in lines_of(options.files)]
    examples += [(x, 1) for x in lines_of(options.other)]
    random.shuffle(examples)
    if options.model:
        tokenizer = PreTrainedTokenizerFast.from_pretrained(options.model)
        model = BertForSequenceClassification.from_pretrained(options.model)
    else:
        tokenizer, model = small_tokenizer([x for x, _ in examples]), small_model()

    def batch_of(part: list[tuple[str, int]]) -> dict[str, torch.Tensor]:
        tokens = tokenizer(
            [x for x, _ in part], padding="max_length", truncation=True,
            max_length=TOKENS, return_tensors="pt",
        )  # fmt: skip
        return {
            "input_ids": tokens["input_ids"],
            "attention_mask": tokens["attention_mask"],
            "labels": torch.tensor([label for _, label in part]),
        }

    held_out, training = examples[:128], examples[128:]
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    export = sparse_opt.torch.export(
        train_step, model.train(), optimizer, batch_of(training[:BATCH])
    )
    mark = f"match={ENCODER} block=16x16 density={options.density}"
    step = sparse_opt.compile(export, [mark], pattern="largest")
    for i in range(options.steps):
        loss = step(batch_of(random.sample(training, BATCH)))
        if i % 20 == 19:
            print(f"step {i + 1}: loss {float(loss):.3f}", flush=True)
            if i + 1 < options.steps:
                step.update_patterns(0.1)

    model.config.save_pretrained(options.output)
    tokenizer.save_pretrained(options.output)
    huggingface.save(step, options.output)
    tuned = BertForSequenceClassification.from_pretrained(options.output).eval()
    with torch.no_grad():
        batch = batch_of(held_out)
        right = tuned(**batch).logits.argmax(-1) == batch["labels"]
    zeros = [(p == 0).float().mean() for n, p in tuned.named_parameters() if n in step.patterns]
    print(
        f"held out: {float(right.float().mean()):.0%} right; zeros in the encoder:"
        f" {float(torch.stack(zeros).mean()):.0%}"
    )


if __name__ == "__main__":
    main()
