"""Alternative engines: the same network for torch, ONNX Runtime and OpenVINO, made from its graph."""
