# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Lightning trains a module with compiled steps: as itself, and resumed.

# RUN: rm -rf %t && mkdir %t
# RUN: %python -u %s %t 2>&1 | FileCheck %s

import copy
import logging
import sys
import warnings

warnings.filterwarnings("ignore")
import lightning
import torch
from torch import nn

from refusals import refuse
from sparse_opt import Group
from sparse_opt.lightning import SparseModule

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
folder = sys.argv[1]


class Regression(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 16), nn.Tanh(), nn.Linear(16, 1))

    def loss(self, batch):
        x, y = batch
        return nn.functional.mse_loss(self.layers(x), y)

    def training_step(self, batch, batch_idx):
        loss = self.loss(batch)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        self.log("validation_loss", self.loss(batch))

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=0.02)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}


class Losses(lightning.Callback):
    def __init__(self):
        self.train, self.validation = [], []

    def on_train_batch_end(self, trainer, *rest):
        self.train.append(float(trainer.callback_metrics["train_loss"]))

    def on_validation_end(self, trainer, module):
        self.validation.append(float(trainer.callback_metrics["validation_loss"]))


torch.manual_seed(0)
x = torch.randn(32, 16)
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, x[:, :1].sin()), 8)
model = Regression()


def fit(module, steps=8, checkpoint=None, **options):
    losses = Losses()
    trainer = lightning.Trainer(
        max_steps=steps, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, callbacks=[losses], num_sanity_val_steps=0, **options,
    )  # fmt: skip
    trainer.fit(module, loader, loader, ckpt_path=checkpoint)
    return trainer, losses


def sparse(density=0.5, **named):
    marks = {"match": "layers.[02].weight$", "block": 4, "density": density}
    return SparseModule(copy.deepcopy(model), marks=marks, options=["-O", "1"], pattern="largest", **named)


# With every block stored it is the module: losses of training and validation, weights.

# CHECK: losses True, validation True, weights True, steps 8
one, other = copy.deepcopy(model), sparse(1)
_, expected = fit(one)
trainer, got = fit(other)
close = [torch.allclose(torch.tensor(a), torch.tensor(b), atol=1e-4) for a, b in
         ((expected.train, got.train), (expected.validation, got.validation))]
pairs = zip(one.parameters(), other.inner.parameters())
weights = all(torch.allclose(a, b, atol=1e-3) for a, b in pairs)
print(f"losses {close[0]}, validation {close[1]}, weights {weights}, steps {trainer.global_step}")

# Patterns are updated, and a run that is resumed is one that was not interrupted.

# CHECK: updates 3, names True, resumed True, losses True
groups = Group(method="rigl", every=2, drop=0.5, end=8)
whole = sparse(sparsity=groups, clip=1.0)
trainer, expected = fit(whole)
logged = trainer.logged_metrics
part = sparse(sparsity=groups, clip=1.0)
trainer, before = fit(part, steps=4)
trainer.save_checkpoint(f"{folder}/part.ckpt")
again = sparse(sparsity=groups, clip=1.0)
_, after = fit(again, checkpoint=f"{folder}/part.ckpt")
kept = torch.load(f"{folder}/part.ckpt", weights_only=True)
pairs = zip(whole.inner.parameters(), again.inner.parameters())
print(
    f"updates {whole.step.counters.pattern_updates}, names {list(kept['state_dict']) == list(model.state_dict())},"
    f" resumed {all(torch.equal(a, b) for a, b in pairs)}, losses {before.train + after.train == expected.train}"
)

# What the last update did is logged.
# CHECK: logged ['density', 'pruned', 'regrown', 'turnover'], density 0.5
names = sorted(set(logged) & {"density", "turnover", "pruned", "regrown"})
print(f"logged {names}, density {float(logged['density'])}")

# CHECK: expected a precision of the model itself, 32-true or bf16-true, but got bf16-mixed
refuse(lambda: fit(sparse(), precision="bf16-mixed"))
# CHECK: expected a LightningModule, but got a Linear
refuse(lambda: SparseModule(nn.Linear(2, 2), marks=[]))
# CHECK: expected an option of SparseModule, but got 'mark': the nearest is 'marks'
refuse(lambda: SparseModule(model, mark="match=weight"))
# CHECK: expected a key of a mark, but got 'blok': the nearest is 'block'
refuse(lambda: SparseModule(model, marks="match=weight blok=4x4"))
# CHECK: expected a checkpoint of a SparseModule, but got one without 'sparse_opt': load its state_dict into the inner module
trainer, _ = fit(copy.deepcopy(model), steps=2)
trainer.save_checkpoint(f"{folder}/dense.ckpt")
refuse(lambda: fit(sparse(), checkpoint=f"{folder}/dense.ckpt"))
