# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# What a LightningModule does besides its training_step is done, or refused.

# RUN: %python -u %s 2>&1 | FileCheck %s --implicit-check-not=apart --implicit-check-not=accepted

import logging
import os
import tempfile
import warnings

warnings.filterwarnings("ignore")
import lightning
import torch
from lightning.pytorch.callbacks import BaseFinetuning, EMAWeightAveraging
from lightning.pytorch.tuner import Tuner
from torch import nn

from refusals import refuse
from sparse_opt.lightning import SparseModule

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
os.chdir(tempfile.mkdtemp())
torch.manual_seed(1)
examples = [(torch.randn(16), int(label)) for label in torch.randint(0, 4, (24,))]
loader = torch.utils.data.DataLoader(examples, batch_size=8)


class Plain(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.lr = 0.1
        self.net = nn.Sequential(nn.Linear(16, 16), nn.GELU(), nn.Linear(16, 4))

    def training_step(self, batch, index):
        return nn.functional.cross_entropy(self.net(batch[0]), batch[1])

    def validation_step(self, batch, index):
        self.log("val", nn.functional.cross_entropy(self.net(batch[0]), batch[1]))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), self.lr, momentum=0.5)


class Epoch(Plain):
    def training_step(self, batch, index):
        return super().training_step(batch, index) * (1.0 + self.current_epoch)


class Step(Plain):
    def training_step(self, batch, batch_idx):
        return super().training_step(batch, 0) * min(1.0, 0.1 + self.global_step / 4) / (1 + batch_idx)


class Hooks(Plain):
    """Has hooks of the backward pass, of the optimizer, and of the loop."""

    def on_after_backward(self):
        for p in self.parameters():
            p.grad.add_(0.05)

    def on_before_optimizer_step(self, optimizer):
        for p in self.parameters():
            p.grad.mul_(0.1)

    def configure_gradient_clipping(self, optimizer, gradient_clip_val=None, gradient_clip_algorithm=None):
        nn.utils.clip_grad_norm_(self.parameters(), 0.05)

    def on_train_epoch_start(self):
        self.log("began", float(self.current_epoch))

    def on_validation_epoch_end(self):
        self.log("norm", self.net[0].weight.norm())


class Plateau(Plain):
    def configure_optimizers(self):
        optimizer = super().configure_optimizers()
        scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, threshold=0.9)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "monitor": "val"}}


class Cycle(Plain):
    def configure_optimizers(self):
        optimizer = super().configure_optimizers()
        scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.5, total_steps=9)
        return [optimizer], [{"scheduler": scheduler, "interval": "step"}]


class Data(Plain):
    def train_dataloader(self):
        return loader

    def on_after_batch_transfer(self, batch, dataloader_idx):
        return 2 * batch[0], batch[1]


def sparse(module):
    marks = ["match=weight$ block=4x4 density=1"]
    return SparseModule(module, marks=marks, pattern="largest", options=["-O", "1"])


def trainer(**options):
    return lightning.Trainer(
        accelerator="cpu", logger=False, enable_progress_bar=False, enable_checkpointing=False,
        enable_model_summary=False, **{"max_epochs": 3, **options},
    )  # fmt: skip


def compare(kind, *loaders, **options):
    """Trains with Lightning's own loop and with compiled steps."""
    runs = []
    for wrap in (lambda module: module, sparse):
        torch.manual_seed(0)
        inner, loop = kind(), trainer(**options)
        loop.fit(wrap(inner), *loaders)
        runs.append((inner, loop.callback_metrics))
    (plain, metrics), (ours, others) = runs
    near = 1e-2 if options else 1e-4
    pairs = zip(plain.parameters(), ours.parameters())
    worst = max(float((a - b).abs().max()) for a, b in pairs)
    worst = max([worst, *(float(abs(v - others[k])) for k, v in metrics.items())])
    print(f"{kind.__name__}: {'equal' if worst < near else f'apart by {worst}'}")


# CHECK: Epoch: equal
compare(Epoch, loader, loader)
# CHECK: Step: equal
compare(Step, loader, loader)
# CHECK: Hooks: equal
compare(Hooks, loader, loader)
# CHECK: Plateau: equal
compare(Plateau, loader, loader)
# CHECK: Cycle: equal
compare(Cycle, loader, loader)
# CHECK: Data: equal
compare(Data)
# CHECK: Plain: equal
compare(Plain, loader, loader, precision="bf16-true")

# A second fit has another optimizer, and goes on with weights and patterns.

# CHECK: second fit: weights True, patterns True, rate 0 moves 0.0
inner = Plain()
module = SparseModule(inner, marks=["match=weight$ block=4x4 density=0.5"], pattern="random")
trainer().fit(module, loader)
before = {name: module.step.blocks(name).col_idx for name in module.step.patterns}
weight, inner.lr = inner.net[0].weight.detach().clone(), 0.0
module._seed = 1  # of other random patterns
trainer().fit(module, loader)
same = all((module.step.blocks(name).col_idx == cols).all() for name, cols in before.items())
moved = float((inner.net[0].weight - weight).abs().max())
print(f"second fit: weights {bool((weight != 0).any())}, patterns {same}, rate 0 moves {moved}")

# The finder of rates loads what it saved before the first step.

# CHECK: rates 3
found = Tuner(trainer(max_epochs=1)).lr_find(sparse(Plain()), loader, num_training=6, update_attr=False)
print("rates", len(found.results["lr"]))


class Skips(Plain):
    def training_step(self, batch, index):
        return None


class Odd(Plain):
    def training_step(self, batch, index):
        return super().training_step(batch, index) * (2.0 if index % 2 else 1.0)


class OwnStep(Plain):
    def optimizer_step(self, epoch, index, optimizer, closure=None):
        optimizer.step(closure=closure)


class Manual(Plain):
    def __init__(self):
        super().__init__()
        self.automatic_optimization = False


class Freezes(BaseFinetuning):
    def freeze_before_training(self, module):
        self.freeze(module.inner.net[0])


# CHECK: expected a training_step that returns a loss for each batch, but got NoneType: leave batches out of the data instead
refuse(lambda: trainer().fit(sparse(Skips()), loader))
# CHECK: expected a step whose control flow does not depend on data, but got a tensor read as a number at {{.*}}hooks.py:{{.*}}index % 2
refuse(lambda: trainer().fit(sparse(Odd()), loader))
# CHECK: expected a module whose optimizer Lightning steps, but got one with optimizer_step of its own
refuse(lambda: sparse(OwnStep()))
# CHECK: expected a module whose optimizer Lightning steps, but got one with manual steps of its own
refuse(lambda: sparse(Manual()))
# CHECK: expected callbacks that leave weights, and which of them are trained, alone, but got EMAWeightAveraging: fit without it
refuse(lambda: trainer(callbacks=[EMAWeightAveraging(decay=0.9)]).fit(sparse(Plain()), loader))
# CHECK: expected callbacks that leave weights, and which of them are trained, alone, but got Freezes
refuse(lambda: trainer(callbacks=[Freezes()]).fit(sparse(Plain()), loader))
# CHECK: expected 'val', which the schedule of the rate monitors, among what is logged, but got train_loss
refuse(lambda: trainer().fit(sparse(Plateau()), loader))
