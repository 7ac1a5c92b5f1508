# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# The Trainer of transformers trains with compiled steps: as itself, and resumed.

# REQUIRES: trainer
# RUN: rm -rf %t && mkdir %t
# RUN: %python -u %s %t 2>&1 | FileCheck %s

import copy
import shutil
import sys

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments
from transformers.trainer_callback import PrinterCallback, TrainerCallback

from refusals import refuse
from sparse_opt import Group, Mark
from sparse_opt.trainer import SparseTrainer

folder = sys.argv[1]
torch.manual_seed(0)
config = BertConfig(
    vocab_size=50, hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64,
    max_position_embeddings=8, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
)
model = BertForSequenceClassification(config)
data = [
    {"input_ids": ids, "labels": int(ids[0] > 25)}
    for ids in torch.randint(1, 50, (40, 8))
]


def trainer(kind, name, model=model, **named):
    options = {"max_steps": 6, "save_steps": 3, **named.pop("args", {})}
    args = TrainingArguments(
        f"{folder}/{name}", per_device_train_batch_size=4, lr_scheduler_type="linear", logging_steps=1,
        report_to=[], use_cpu=True, seed=3, disable_tqdm=True,
        **{"dataloader_drop_last": True, "learning_rate": 1e-2, **options},
    )  # fmt: skip
    result = kind(model=copy.deepcopy(model), args=args, train_dataset=data, eval_dataset=data[:8], **named)
    result.remove_callback(PrinterCallback)
    return result


def history(run, key):
    return torch.tensor([entry[key] for entry in run.state.log_history if key in entry])


def sparse(name, density=0.5, **named):
    return trainer(
        SparseTrainer, name, marks=Mark("layer.*(query|dense).weight$", block=8, density=density),
        options=["-O", "1"], pattern="largest", **named,
    )  # fmt: skip


# With every block stored it is the Trainer: losses, norms, rates, weights, evaluation.

# CHECK: loss True, grad_norm True, learning_rate True, eval_loss True, weights True
one, other = trainer(Trainer, "dense"), sparse("full", 1)
one.train(), other.train()
one.evaluate(), other.evaluate()
same = {
    key: torch.allclose(history(one, key), history(other, key), rtol=1e-3, atol=1e-4)
    for key in ("loss", "grad_norm", "learning_rate", "eval_loss")
}
pairs = zip(one.model.parameters(), other.model.parameters())
weights = all(torch.allclose(a, b, atol=2e-3) for a, b in pairs)
print(", ".join(f"{key} {value}" for key, value in {**same, "weights": weights}.items()))

# Patterns are updated, and a run that is resumed is one that was not interrupted.

# CHECK: updates 2, stored 48 of 96, zeros True, resumed True, losses True
groups = [Group(method="rigl", every=2, drop=0.5, until=1.0)]
whole = sparse("whole", sparsity=groups)
whole.train()
counters = whole.step.counters
stored = sum(len(whole.step.blocks(n).slot) for n in whole.step.patterns)
total = sum(p.blocks for p in whole.step.patterns.values())
weight = whole.model.bert.encoder.layer[0].intermediate.dense.weight
zeros = int((weight == 0).sum()) >= weight.numel() // 2
shutil.copytree(f"{folder}/whole/checkpoint-3", f"{folder}/part/checkpoint-3")
part = sparse("part", sparsity=groups)
part.train(resume_from_checkpoint=f"{folder}/part/checkpoint-3")
pairs = zip(whole.model.parameters(), part.model.parameters())
print(
    f"updates {counters.pattern_updates}, stored {stored} of {total}, zeros {zeros},"
    f" resumed {all(torch.equal(a, b) for a, b in pairs)},"
    f" losses {torch.equal(history(whole, 'loss'), history(part, 'loss'))}"
)

# What updates did is logged with the loss.

# CHECK: logged pruned True, regrown True, density 0.5, turnover True
logged = {key: [float(v) for v in history(whole, key)] for key in ("pruned", "regrown", "density", "turnover")}
print(
    f"logged pruned {sum(logged['pruned']) == counters.blocks_pruned > 0},"
    f" regrown {logged['regrown'] == logged['pruned']}, density {logged['density'][0]},"
    f" turnover {all(0 < share <= 0.5 for share in logged['turnover'])}"
)

# CHECK: expected dataloader_drop_last=True, since a compiled step has one shape, but got False
refuse(lambda: sparse("x", args={"dataloader_drop_last": False}))
# CHECK: expected gradient_accumulation_steps=1, but got 2
refuse(lambda: sparse("x", args={"gradient_accumulation_steps": 2}))
# CHECK: expected neither fp16 nor bf16 but a model of that type, model.to(torch.bfloat16), but got bf16=True
refuse(lambda: sparse("x", args={"bf16": True}))
# CHECK: expected an option of SparseTrainer, but got 'mark': the nearest is 'marks'
refuse(lambda: trainer(SparseTrainer, "x", mark="match=query"))
# CHECK: expected an option of SparseTrainer, but got 'eval_data': the nearest is 'eval_dataset'
refuse(lambda: sparse("x", eval_data=data))
# CHECK: expected a key of a mark, but got 'blok': the nearest is 'block'
refuse(lambda: trainer(SparseTrainer, "x", marks={"match": "query", "blok": 8}))
# CHECK: expected a checkpoint of a SparseTrainer, but got '{{.*}}checkpoint-3' without sparse_opt.safetensors
refuse(lambda: sparse("y").train(resume_from_checkpoint=f"{folder}/dense/checkpoint-3"))

# What num_items_in_batch divides is divided, and a loss of the user's own gets it.


def scaled(outputs, labels, num_items_in_batch):
    loss = torch.nn.functional.cross_entropy(outputs.logits, labels, reduction="sum")
    return loss / (num_items_in_batch + 1)


# CHECK: own losses True
short = {"max_steps": 2, "save_strategy": "no"}
runs = [
    trainer(Trainer, "own", args=short, compute_loss_func=scaled),
    sparse("own", 1, args=short, compute_loss_func=scaled),
]
losses = [(run.train(), history(run, "loss"))[1] for run in runs]
print("own losses", torch.allclose(*losses, rtol=1e-3, atol=1e-4))

# The best model stays, and so do weights that are loaded behind the training.

# CHECK: best True, loaded True
best = {
    "eval_strategy": "steps", "eval_steps": 1, "save_steps": 1, "load_best_model_at_end": True,
    "metric_for_best_model": "eval_loss", "greater_is_better": False, "max_steps": 3, "learning_rate": 0.5,
}  # fmt: skip
run = sparse("best", args=best)
run.train()
found = run.evaluate()["eval_loss"]
loaded = copy.deepcopy(model).state_dict()
run.model.load_state_dict(loaded)
run.evaluate()
kept = all(torch.equal(v, loaded[k]) for k, v in run.model.state_dict().items())
print(f"best {abs(found - run.state.best_metric) < 1e-4}, loaded {kept}")

# So it does behind a step that nothing evaluates or saves, of a training that a callback ends.


class Ends(TrainerCallback):
    def on_step_end(self, args, state, control, **named):
        control.should_training_stop = state.global_step == 3


# CHECK: best of before True
run = sparse("before", args={**best, "max_steps": 6, "eval_steps": 2, "save_steps": 2}, callbacks=[Ends()])
run.train()
found = run.evaluate()["eval_loss"]
print(f"best of before {abs(found - run.state.best_metric) < 1e-4}")

# A second train() goes on with weights and patterns, of a run that was resumed, too.

# CHECK: patterns True, weights True
part.args.max_steps = 1
before = {name: part.step.blocks(name).col_idx for name in part.step.patterns}
part._groups, part._pattern, part.args.learning_rate = [], "random", 1e-7
part.optimizer = None  # of the rate that it is to have
weights = copy.deepcopy(part.model.state_dict())
part.train()
same = all((part.step.blocks(name).col_idx == cols).all() for name, cols in before.items())
kept = all(torch.allclose(v, weights[k], atol=1e-6) for k, v in part.model.state_dict().items())
print(f"patterns {same}, weights {kept}")
