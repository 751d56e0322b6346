"""PyTorch Lightning: two hooks of the module create and step the schedule.

python examples/lightning_loop.py
"""

import torch
import torch.nn.functional as F
from digits_cnn import DigitsCNN, loader, options, pack
from torch import Tensor

import rbnn

try:
    import lightning
except ModuleNotFoundError as missing:
    raise SystemExit(f"this example needs {missing.name}: pip install 'rbnn[examples]'") from None


class Digits(lightning.LightningModule):
    def __init__(self, method: str) -> None:
        super().__init__()
        self.model = DigitsCNN()
        rbnn.binarize_(self.model, method)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), 0.1, momentum=0.9)

    def on_train_start(self) -> None:
        self.schedule = rbnn.BinarySchedule(self.model, self.optimizers(), self.trainer.max_epochs)

    def on_train_epoch_start(self) -> None:
        self.schedule.step(self.current_epoch)

    def training_step(self, batch: list[Tensor], index: int) -> Tensor:
        images, labels = batch
        loss = F.cross_entropy(self.model(images), labels) + rbnn.penalty(self.model)
        self.log("loss", loss, on_step=False, on_epoch=True)
        return loss

    def on_train_epoch_end(self) -> None:
        print(f"epoch {self.current_epoch + 1}: loss {float(self.trainer.callback_metrics['loss']):.3f}")


given = options()
lightning.seed_everything(0, verbose=False)
digits = Digits(given.method)
trainer = lightning.Trainer(
    max_epochs=given.epochs, accelerator="cpu", logger=False, enable_checkpointing=False, gradient_clip_val=1.0,
    enable_progress_bar=False, enable_model_summary=False,
)  # fmt: skip
trainer.fit(digits, loader(train=True))
pack(digits.model, given.out)
