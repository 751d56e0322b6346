"""Fully sharded data parallel (FSDP2): each process holds a part of every weight.

torchrun --nproc-per-node=2 examples/fsdp.py
"""

import torch
import torch.distributed as dist
import torch.distributed.nn  # before there is a group: its functions would keep the group
import torch.nn.functional as F
from digits_cnn import Block, DigitsCNN, digits, options, pack
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, DistributedSampler

import rbnn

given = options()
dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
device = torch.device("cuda", dist.get_node_local_rank()) if torch.cuda.is_available() else torch.device("cpu")
torch.manual_seed(0)
model = DigitsCNN()
rbnn.binarize_(model, given.method)
model.to(device)
for part in model:
    if isinstance(part, Block):
        fully_shard(part)
fully_shard(model)
optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
schedule = rbnn.BinarySchedule(model, optimizer, given.epochs)
cosine = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, given.epochs)

pictures = digits(train=True)
sampler = DistributedSampler(pictures)
batches = DataLoader(pictures, 32, sampler=sampler)
for epoch in range(given.epochs):
    schedule.step(epoch)
    sampler.set_epoch(epoch)
    total = torch.zeros((), device=device)
    for images, labels in batches:
        loss = F.cross_entropy(model(images.to(device)), labels.to(device)) + rbnn.penalty(model)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.detach()
    cosine.step()
    dist.all_reduce(total)
    if dist.get_rank() == 0:
        print(f"epoch {epoch + 1}: loss {float(total) / len(batches) / dist.get_world_size():.3f}")

# Rank 0 collects the parts in a network that was never sharded.
state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
if dist.get_rank() == 0:
    whole = DigitsCNN()
    rbnn.binarize_(whole, given.method)
    whole.load_state_dict(state)
    pack(whole, given.out)
dist.barrier()  # nobody leaves while another process still needs it
dist.destroy_process_group()
