"""Engines that one would use instead: the same network for torch, ONNX Runtime and OpenVINO, made from its graph."""
