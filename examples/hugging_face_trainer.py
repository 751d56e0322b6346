"""Hugging Face's Trainer: the schedule is a callback.

python examples/hugging_face_trainer.py
"""

from tempfile import TemporaryDirectory
from typing import Any

import torch
import torch.nn.functional as F
from digits_cnn import DigitsCNN, digits, options, pack
from torch import Tensor, nn

import rbnn

try:
    from transformers import Trainer, TrainerCallback, TrainingArguments
except ModuleNotFoundError as missing:
    raise SystemExit(f"this example needs {missing.name}: pip install 'rbnn[examples]'") from None


class WithLoss(nn.Module):
    """The Trainer expects the forward pass to return the loss."""

    def __init__(self, method: str) -> None:
        super().__init__()
        self.model = DigitsCNN()
        rbnn.binarize_(self.model, method)

    def forward(self, pixel_values: Tensor, labels: Tensor) -> dict[str, Tensor]:
        logits = self.model(pixel_values)
        return {"loss": F.cross_entropy(logits, labels) + rbnn.penalty(self.model), "logits": logits}


class Schedule(TrainerCallback):
    def on_train_begin(self, args: TrainingArguments, state: Any, control: Any, **kwargs: Any) -> None:
        self.schedule = rbnn.BinarySchedule(kwargs["model"], kwargs["optimizer"], int(args.num_train_epochs))

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.schedule.step(state.epoch)


given = options()
torch.manual_seed(0)
network = WithLoss(given.method)
with TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        folder, num_train_epochs=given.epochs, per_device_train_batch_size=64, learning_rate=0.01, max_grad_norm=1.0,
        lr_scheduler_type="cosine", logging_strategy="epoch", save_strategy="epoch", save_total_limit=1,
        report_to="none", disable_tqdm=True, use_cpu=True,
    )  # fmt: skip
    pictures = [{"pixel_values": image, "labels": label} for image, label in digits(train=True)]
    trainer = Trainer(network, arguments, train_dataset=pictures, callbacks=[Schedule()])
    trainer.train()
pack(network.model, given.out)
