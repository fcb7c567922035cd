"""What one rank does in a training step: a decoder-only transformer, sharded parameters, AdamW."""

from __future__ import annotations

from collections.abc import Generator

from .synthetic_rank import COMM, COMPUTE, COPY, Collective, Kernel, Rank

BATCH, SEQUENCE, HIDDEN, HEADS, HEAD_DIM, VOCABULARY = 4, 2_048, 2_048, 16, 128, 32_000
TOKENS = BATCH * SEQUENCE
LAYER_PARAMETERS = 12 * HIDDEN * HIDDEN

CAUSES: dict[str, str] = {
    "data-loader": "the host waits 9 ms for each batch",
    "sync": "each layer's forward reads a value back, which blocks the host, and works on it for 0.15 ms",
    "tiny-kernels": "the activation runs as 16 elementwise kernels of about 2 us",
    "lost-flash": "attention runs as separate fp32 matmuls and a softmax instead of one flash kernel",
    "exposed-all-reduce": "the all-reduce after backward takes 6 ms and nothing runs beside it",
    "straggler-op": "one rank's layer norms take 12 times as long",
}
"""Causes of lost time that a plan can plant, each with what it does."""

_GEMM = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_%s_tilesize128x256x64_warpgroupsize2x1x1_execute_segment_k_off_kernel__5x_cublas"
_ELEMENTWISE = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::%s, std::array<char*, %d> >"
    "(int, at::native::%s, std::array<char*, %d>)"
)
_FLASH = "void flash_%s_kernel<Flash_%s_kernel_traits<128, 128, 64, 4, false, false, cutlass::bfloat16_t>, true>(Flash_%s_params)"


def _gemm(layout: str, dur_us: int, tiles: int) -> Kernel:
    return Kernel(_GEMM % layout, dur_us * 1_000, (2, tiles, 1), 384, 168, 214_016, 18)


def _elementwise(functor: str, operands: int, dur_us: int) -> Kernel:
    name = _ELEMENTWISE % (functor, operands, functor, operands)
    return Kernel(name, dur_us * 1_000, (TOKENS, 1, 1), 128, 26, 0, 100)


def _flash(kind: str, dur_us: int) -> Kernel:
    return Kernel(_FLASH % (kind, kind, kind), dur_us * 1_000, (SEQUENCE // 128, BATCH, HEADS), 128, 255, 81_920, 12)


EMBED = Kernel(
    "void at::native::(anonymous namespace)::indexSelectLargeIndex<c10::BFloat16, long, unsigned int, 2, 2, -2, true>",
    21_000,
    (1_056, 1, 1),
)
NORM = Kernel(
    "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float>",
    17_000,
    (TOKENS, 1, 1),
    128,
    40,
    24,
    100,
)
NORM_BACKWARD = Kernel(
    "void at::native::(anonymous namespace)::layer_norm_grad_input_kernel_vectorized<c10::BFloat16, float>",
    26_000,
    (TOKENS, 1, 1),
    128,
    48,
    16,
    75,
)
QKV, PROJECT, UP, DOWN, HEAD = (
    _gemm("tn_n", us, tiles) for us, tiles in ((168, 96), (62, 32), (221, 128), (214, 32), (846, 500))
)
WEIGHT_GRADIENT, INPUT_GRADIENT = _gemm("nt_n", 190, 64), _gemm("nn_n", 181, 64)
FLASH, FLASH_BACKWARD = _flash("fwd", 149), _flash("bwd_dq_dk_dv_loop_seqk_parallel", 402)
MATH_MATMUL = Kernel("ampere_sgemm_128x64_tn", 610_000, (16, 16, 64), 128, 122, 12_288, 25)
SOFTMAX = Kernel(
    "void (anonymous namespace)::softmax_warp_forward<float, float, float, 11, false, false>", 188_000, (32_768, 1, 1), 128, 54
)
SOFTMAX_BACKWARD = SOFTMAX._replace(
    name="void (anonymous namespace)::softmax_warp_backward<float, float, float, 11, false, false>"
)
GELU = _elementwise("GeluCUDAKernelImpl(at::TensorIteratorBase&, at::native::GeluType)::{lambda()#2}", 2, 31)
GELU_BACKWARD = _elementwise("GeluBackwardCUDAKernelImpl(at::TensorIteratorBase&, at::native::GeluType)::{lambda()#2}", 3, 44)
ADD = _elementwise("CUDAFunctor_add<c10::BFloat16>", 3, 16)
TINY = _elementwise(
    "AUnaryFunctor<c10::BFloat16, c10::BFloat16, c10::BFloat16, at::native::binary_internal::MulFunctor<float> >", 2, 2
)
LOSS = Kernel(
    "void (anonymous namespace)::cunn_SoftMaxForward<8, float, float, float, LogSoftMaxForwardEpilogue>",
    143_000,
    (TOKENS, 1, 1),
    1_024,
    32,
    4_096,
    100,
)
ADAM = Kernel(
    "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<TensorListMetadata<4>, FusedAdamMathFunctor<float, 4> >",
    74_000,
    (320, 1, 1),
    512,
    58,
    0,
    50,
)

GATHER = "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
SCATTER = "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
REDUCE = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"

Work = Generator[Collective, int, None]
"""A part of a step; it yields at each collective and is sent the time at which that ends."""


def train_step(rank: Rank, number: int, layers: int, causes: frozenset[str], *, straggler: bool) -> Work:
    """Run one training step on a rank.

    Args:
        rank: the rank's state.
        number: number of the step.
        layers: decoder layers.
        causes: keys of `CAUSES` to plant.
        straggler: this rank's matmuls take 15 % longer, or it runs the slow op of `straggler-op`.
    """
    name = f"ProfilerStep#{number}"
    model = Model(rank, layers, causes, straggler=straggler)
    with rank.op(name, cat="user_annotation"), rank.frame("train.py(58): train_step"):
        model.load_batch()
        yield from model.forward()
        yield from model.backward()
        model.optimizer()
        model.read_loss()
        rank.annotate_gpu(name)


class Model:
    """The parts of a step on one rank."""

    def __init__(self, rank: Rank, layers: int, causes: frozenset[str], *, straggler: bool) -> None:
        self.rank, self.layers, self.causes = rank, layers, causes
        self.slow_op = straggler and "straggler-op" in causes
        self.slow_matmul = 1.15 if straggler and not self.slow_op else 1.0

    def load_batch(self) -> None:
        """Fetch the next batch and copy it to the device."""
        rank = self.rank
        with rank.frame("torch/utils/data/dataloader.py(733): __next__"):
            fetch = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
            with rank.op(fetch, cat="user_annotation", host_ns=180_000):
                if "data-loader" in self.causes:
                    before = rank.host_ns
                    rank.spend(9_000_000)
                    rank.planted_ns += rank.host_ns - before
        for _ in ("tokens", "labels"):
            with rank.op("aten::to"), rank.op("aten::_to_copy"), rank.op("aten::copy_"):
                rank.copy("Memcpy HtoD (Pinned -> Device)", TOKENS * 8, COPY, 24.0)
        rank.wait(COMPUTE, COPY)

    def forward(self) -> Work:
        """Embed, run the layers with each one's parameters gathered a layer ahead, and compute the loss."""
        rank = self.rank
        with rank.frame("nn.Module: Transformer_0", 0):
            yield from self._gather()
            rank.wait(COMPUTE, COMM)
            self._op("aten::embedding", EMBED, 2)
            for layer in range(self.layers):
                if layer + 1 < self.layers:
                    yield from self._gather()
                with rank.frame(f"nn.Module: DecoderLayer_{layer}", layer + 1):
                    self._attention(layer)
                    self._mlp(layer)
                rank.wait(COMPUTE, COMM)
            with rank.frame("nn.Module: Linear_lm_head", self.layers + 1):
                self._linear(HEAD, VOCABULARY)
            with rank.frame("torch/nn/functional.py(3053): cross_entropy"):
                self._op("aten::cross_entropy_loss", LOSS, 2)

    def backward(self) -> Work:
        """Walk back through the layers on the autograd thread, reducing each one's gradients as they are ready."""
        rank = self.rank
        with rank.frame("torch/_tensor.py(570): backward"):
            rank.thread = rank.backward_thread
            rank.spend(35_000)
            self._gradient("MmBackward0", "aten::mm", (INPUT_GRADIENT, WEIGHT_GRADIENT), 4.2)
            for layer in reversed(range(self.layers)):
                self._layer_gradients(layer)
                yield from rank.collective(
                    "_reduce_scatter_base", SCATTER, (LAYER_PARAMETERS, LAYER_PARAMETERS // rank.ranks), 780_000
                )
            self._gradient("EmbeddingBackward0", "aten::embedding_dense_backward", (EMBED,))
            yield from self._all_reduce()
            rank.thread = rank.main_thread
            rank.spend(18_000)

    def optimizer(self) -> None:
        """Wait for the gradients and update the parameters."""
        rank = self.rank
        rank.wait(COMPUTE, COMM)
        with (
            rank.frame("torch/optim/adamw.py(202): step"),
            rank.op("Optimizer.step#AdamW.step", cat="user_annotation", host_ns=60_000),
        ):
            for _ in range(2 + self.layers):
                with rank.op("aten::_fused_adamw_", host_ns=14_000):
                    rank.launch(ADAM)
        with rank.op("Optimizer.zero_grad#AdamW.zero_grad", cat="user_annotation", host_ns=25_000):
            rank.free_step()

    def read_loss(self) -> None:
        """Read the loss back, which ends the step on host and device."""
        with self.rank.frame("train.py(71): log"):
            self._item()

    def _item(self) -> None:
        rank = self.rank
        with rank.op("aten::item"), rank.op("aten::_local_scalar_dense"):
            rank.copy("Memcpy DtoH (Device -> Pageable)", 4, COMPUTE, 1.0)
            rank.synchronise(COMPUTE)

    def _gather(self) -> Work:
        ranks = self.rank.ranks
        yield from self.rank.collective("_allgather_base", GATHER, (LAYER_PARAMETERS // ranks, LAYER_PARAMETERS), 395_000)

    def _all_reduce(self) -> Work:
        planted = 6_000_000 if "exposed-all-reduce" in self.causes else 0
        self.rank.planted_ns += planted
        elements = VOCABULARY * HIDDEN
        yield from self.rank.collective("allreduce", REDUCE, (elements, elements), 1_150_000 + planted)

    def _attention(self, layer: int) -> None:
        rank = self.rank
        self._norm()
        with rank.frame(f"nn.Module: Attention_{layer}", 1_000 + layer):
            self._linear(QKV, 3 * HIDDEN)
            with rank.op("aten::scaled_dot_product_attention", attention_args(), host_ns=4_500):
                if "lost-flash" in self.causes:
                    with rank.op("aten::_scaled_dot_product_attention_math", attention_args()):
                        parts = (("aten::bmm", MATH_MATMUL), ("aten::_softmax", SOFTMAX), ("aten::bmm", MATH_MATMUL))
                        dur = sum(self._op(op, kernel, 4) for op, kernel in parts)
                        rank.planted_ns += dur - FLASH.dur_ns
                else:
                    with rank.op("aten::_scaled_dot_product_flash_attention", attention_args()):
                        self._op("aten::_flash_attention_forward", FLASH, 2)
            self._linear(PROJECT, HIDDEN)
        self._op("aten::add", ADD, 2)
        if "sync" in self.causes:
            before = rank.host_ns
            self._item()
            rank.spend(150_000)
            rank.planted_ns += rank.host_ns - before

    def _mlp(self, layer: int) -> None:
        rank = self.rank
        self._norm()
        with rank.frame(f"nn.Module: MLP_{layer}", 2_000 + layer):
            self._linear(UP, 4 * HIDDEN)
            if "tiny-kernels" in self.causes:
                before = rank.host_ns
                for _ in range(16):
                    self._op("aten::mul", TINY, 2)
                rank.planted_ns += rank.host_ns - before
            else:
                self._op("aten::gelu", GELU, 8)
            self._linear(DOWN, HIDDEN)
        self._op("aten::add", ADD, 2)

    def _layer_gradients(self, layer: int) -> None:
        both = (INPUT_GRADIENT, WEIGHT_GRADIENT)
        self._gradient("AddmmBackward0", "aten::mm", both, layer=layer)
        self._gradient("GeluBackward0", "aten::gelu_backward", (GELU_BACKWARD,), layer=layer)
        self._gradient("AddmmBackward0", "aten::mm", both, layer=layer)
        self._norm_gradient(layer)
        self._gradient("AddmmBackward0", "aten::mm", both, 0.3, layer=layer)
        self._attention_gradient(layer)
        self._gradient("AddmmBackward0", "aten::mm", both, 0.8, layer=layer)
        self._norm_gradient(layer)

    def _norm_gradient(self, layer: int) -> None:
        op = "aten::native_layer_norm_backward"
        dur = self._gradient("NativeLayerNormBackward0", op, (NORM_BACKWARD,), self._norm_scale(), layer=layer)
        if self.slow_op:
            self.rank.planted_ns += dur - NORM_BACKWARD.dur_ns

    def _attention_gradient(self, layer: int) -> None:
        if "lost-flash" not in self.causes:
            self._gradient(
                "ScaledDotProductFlashAttentionBackward0", "aten::_flash_attention_backward", (FLASH_BACKWARD,), layer=layer
            )
            return
        dur = self._gradient("BmmBackward0", "aten::bmm", (MATH_MATMUL, MATH_MATMUL), layer=layer)
        dur += self._gradient("SoftmaxBackward0", "aten::_softmax_backward_data", (SOFTMAX_BACKWARD,), layer=layer)
        dur += self._gradient("BmmBackward0", "aten::bmm", (MATH_MATMUL, MATH_MATMUL), layer=layer)
        self.rank.planted_ns += dur - FLASH_BACKWARD.dur_ns

    def _gradient(self, node: str, op: str, kernels: tuple[Kernel, ...], scale: float = 1.0, *, layer: int = 0) -> int:
        rank = self.rank
        args = f', "Sequence number": {layer}, "Fwd thread id": 1'
        if kernels[0] is INPUT_GRADIENT:
            scale *= self.slow_matmul
        with rank.op(f"autograd::engine::evaluate_function: {node}", args), rank.op(node, args):
            dur = sum(self._op(op, kernel, 2, scale) for kernel in kernels)
        rank.memory(-2 * TOKENS * HIDDEN)
        return dur

    def _norm(self) -> None:
        scale = self._norm_scale()
        with self.rank.frame("nn.Module: LayerNorm"), self.rank.op("aten::layer_norm"):
            dur = self._op("aten::native_layer_norm", NORM, 2, scale)
        if self.slow_op:
            self.rank.planted_ns += dur - NORM.dur_ns

    def _norm_scale(self) -> float:
        return 12.0 if self.slow_op else 1.0

    def _linear(self, kernel: Kernel, width: int) -> None:
        with self.rank.op("aten::linear", dims((TOKENS, HIDDEN), (width, HIDDEN))):
            self._op("aten::addmm", kernel, 2 * width // HIDDEN, self.slow_matmul)

    def _op(self, name: str, kernel: Kernel, size: int, scale: float = 1.0) -> int:
        """Run an operator of one kernel whose output takes `size` bytes a token and channel; returns the kernel's ns."""
        rank = self.rank
        with rank.op(name, dims((TOKENS, HIDDEN), (TOKENS, HIDDEN)), host_ns=5_600):
            rank.memory(size * TOKENS * HIDDEN)
            return rank.launch(kernel, scale)


def dims(*shapes: tuple[int, ...]) -> str:
    """Return input shapes and types as more args, JSON text."""
    strides = [[shape[-1], 1] for shape in shapes]
    types = ", ".join(['"c10::BFloat16"'] * len(shapes))
    sizes = [list(shape) for shape in shapes]
    return f', "Concrete Inputs": ["", ""], "Input type": [{types}], "Input Strides": {strides}, "Input Dims": {sizes}'


def attention_args() -> str:
    """Return the shapes of q, k and v as more args, JSON text."""
    shape = [BATCH, HEADS, SEQUENCE, HEAD_DIM]
    return (
        ', "Concrete Inputs": ["", "", "", "", "0.", "True"],'
        ' "Input type": ["c10::BFloat16", "c10::BFloat16", "c10::BFloat16", "", "Scalar", "Scalar"],'
        f' "Input Strides": [[4194304, 128, 2048, 1], [4194304, 128, 2048, 1], [4194304, 128, 2048, 1], [], [], []],'
        f' "Input Dims": [{shape}, {shape}, {shape}, [], [], []]'
    )
