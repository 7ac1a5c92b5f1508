// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Products of the libraries that are written in C and C++: those that were
// found when this was built.

#include "peers.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <omp.h>
#include <string>
#include <vector>

#ifdef HAVE_ONEDNN
#include <dnnl.hpp>
#endif
#ifdef HAVE_OPENBLAS
#include <cblas.h>
#endif
#ifdef HAVE_LIBXSMM
#include <libxsmm.h>
#endif
#ifdef HAVE_EIGEN
#include <Eigen/SparseCore>
#endif

namespace {
enum class Op { SpMM, SpMMTransposed, SDDMM };

/// A prepared product.
struct Peer {
  std::function<void()> run;
  std::vector<float> result;
  std::vector<uint16_t> result16;
  Layout layout = FeatureMajor;

  float *allocate(int64_t elements, Layout where) {
    result.resize(elements);
    layout = where;
    return result.data();
  }
};

using Factory = bool (*)(Peer &, Op, const Problem &);

/// The features that `op` reads and writes, per token.
struct Features {
  int64_t in, out;
  Features(Op op, const Problem &p)
      : in(op == Op::SpMMTransposed ? p.cols : p.rows),
        out(op == Op::SpMMTransposed ? p.rows : p.cols) {}
};
} // namespace

//===----------------------------------------------------------------------===//
// Dense products: the same operation on a matrix with its zeros
//===----------------------------------------------------------------------===//

/// Sizes and operands, row-major, of the dense product of `op`:
/// y = x W, dx = dy W^T, dW = x^T dy, all token by token.
template <typename T>
struct Gemm {
  int64_t m, n, k;
  const T *a, *b;
  bool transposeA, transposeB;

  Gemm(Op op, const Problem &p, const T *x, const T *dy, const T *w) {
    if (op == Op::SpMM)
      *this = {p.tokens, p.cols, p.rows, x, w, false, false};
    else if (op == Op::SpMMTransposed)
      *this = {p.tokens, p.rows, p.cols, dy, w, false, true};
    else
      *this = {p.rows, p.cols, p.tokens, x, dy, true, false};
  }
  int64_t lda() const { return transposeA ? m : k; }
  int64_t ldb() const { return transposeB ? k : n; }

private:
  Gemm(int64_t m, int64_t n, int64_t k, const T *a, const T *b, bool transposeA,
       bool transposeB)
      : m(m), n(n), k(k), a(a), b(b), transposeA(transposeA),
        transposeB(transposeB) {}
};

static Layout getDenseLayout(Op op) {
  return op == Op::SDDMM ? Matrix : TokenMajor;
}

#ifdef HAVE_OPENBLAS
static bool makeOpenBLAS(Peer &peer, Op op, const Problem &p) {
  if (p.x16)
    return false;
  Gemm<float> g(op, p, p.x, p.dy, p.dense);
  float *c = peer.allocate(g.m * g.n, getDenseLayout(op));
  peer.run = [=] {
    cblas_sgemm(CblasRowMajor, g.transposeA ? CblasTrans : CblasNoTrans,
                g.transposeB ? CblasTrans : CblasNoTrans, g.m, g.n, g.k, 1, g.a,
                g.lda(), g.b, g.ldb(), 0, c, g.n);
  };
  return true;
}
#endif

#ifdef HAVE_ONEDNN
/// oneDNN's matrix product; every operand lies as its strides say.
template <typename T>
static void makeMatmul(Peer &peer, const Gemm<T> &g, T *c,
                       dnnl::memory::data_type type) {
  using dnnl::memory;
  static dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  static dnnl::stream stream(engine);
  auto bind = [&](int64_t m, int64_t n, bool transpose, const T *data) {
    memory::desc desc({m, n}, type,
                      transpose ? memory::dims{1, m} : memory::dims{n, 1});
    return memory(desc, engine, const_cast<T *>(data));
  };
  memory a = bind(g.m, g.k, g.transposeA, g.a);
  memory b = bind(g.k, g.n, g.transposeB, g.b);
  memory out = bind(g.m, g.n, false, c);
  // The library says how it wants the operands, and each run reorders those
  // that lie otherwise: in place, it multiplies some of them three times as
  // slowly.
  auto any = [&](int64_t m, int64_t n) {
    return memory::desc({m, n}, type, memory::format_tag::any);
  };
#if DNNL_VERSION_MAJOR >= 3
  dnnl::matmul::primitive_desc desc(engine, any(g.m, g.k), any(g.k, g.n),
                                    out.get_desc());
#else
  dnnl::matmul::primitive_desc desc(
      {any(g.m, g.k), any(g.k, g.n), out.get_desc()}, engine);
#endif
  auto order = [&](const memory &from, const memory::desc &wanted) {
    return wanted == from.get_desc() ? from : memory(wanted, engine);
  };
  memory orderedA = order(a, desc.src_desc());
  memory orderedB = order(b, desc.weights_desc());
  dnnl::matmul matmul(desc);
  peer.run = [=]() mutable {
    if (orderedA != a)
      dnnl::reorder(a, orderedA).execute(stream, a, orderedA);
    if (orderedB != b)
      dnnl::reorder(b, orderedB).execute(stream, b, orderedB);
    matmul.execute(stream, {{DNNL_ARG_SRC, orderedA},
                            {DNNL_ARG_WEIGHTS, orderedB},
                            {DNNL_ARG_DST, out}});
    stream.wait();
  };
}

static bool makeOneDNN(Peer &peer, Op op, const Problem &p) {
  if (p.x16) {
    Gemm<uint16_t> g(op, p, p.x16, p.dy16, p.dense16);
    peer.result16.resize(g.m * g.n);
    peer.layout = getDenseLayout(op);
    makeMatmul(peer, g, peer.result16.data(), dnnl::memory::data_type::bf16);
  } else {
    Gemm<float> g(op, p, p.x, p.dy, p.dense);
    float *c = peer.allocate(g.m * g.n, getDenseLayout(op));
    makeMatmul(peer, g, c, dnnl::memory::data_type::f32);
  }
  return true;
}
#endif

//===----------------------------------------------------------------------===//
// Eigen: sparse rows, feature by feature
//===----------------------------------------------------------------------===//

#ifdef HAVE_EIGEN
static bool makeEigen(Peer &peer, Op op, const Problem &p) {
  using Dense =
      Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  using Sparse = Eigen::SparseMatrix<float, Eigen::RowMajor, int>;
  if (p.x16 || op == Op::SDDMM)
    return false;
  Features features(op, p);
  Eigen::Map<const Dense> w(p.dense, p.rows, p.cols);
  // The matrix that makes outputs of inputs: its transpose is built once.
  auto matrix = std::make_shared<Sparse>(
      op == Op::SpMM ? Sparse(Dense(w.transpose()).sparseView())
                     : Sparse(w.sparseView()));
  const float *in = op == Op::SpMM ? p.xT : p.dyT;
  float *out = peer.allocate(features.out * p.tokens, FeatureMajor);
  int64_t tokens = p.tokens;
  peer.run = [=] {
    Eigen::Map<const Dense> x(in, features.in, tokens);
    Eigen::Map<Dense> y(out, features.out, tokens);
    y.noalias() = *matrix * x;
  };
  return true;
}
#endif

//===----------------------------------------------------------------------===//
// libxsmm: its sparse-dense product, and the loop around its batch-reduce
// product that its users write
//===----------------------------------------------------------------------===//

#ifdef HAVE_LIBXSMM
static bool makeSpMDM(Peer &peer, Op op, const Problem &p) {
  if (p.x16 || op == Op::SDDMM)
    return false;
  struct State {
    libxsmm_spmdm_handle handle;
    libxsmm_CSR_sparseslice *slices;
    ~State() { libxsmm_spmdm_destroy(&handle); }
  };
  Features features(op, p);
  int threads = omp_get_max_threads();
  auto state = std::make_shared<State>();
  libxsmm_spmdm_init(features.out, p.tokens, features.in, threads,
                     &state->handle, &state->slices);
  // Cut the matrix once; W is its transpose for the forward product.
  char transpose = op == Op::SpMM ? 'T' : 'N';
  int slices = libxsmm_spmdm_get_num_createSparseSlice_blocks(&state->handle);
  for (int i = 0; i < slices; ++i)
    libxsmm_spmdm_createSparseSlice_fp32_thread(
        &state->handle, transpose, p.dense, state->slices, i, 0, threads);
  const float *in = op == Op::SpMM ? p.xT : p.dyT;
  float *out = peer.allocate(features.out * p.tokens, FeatureMajor);
  peer.run = [=] {
    static const float one = 1, zero = 0;
    int blocks = libxsmm_spmdm_get_num_compute_blocks(&state->handle);
#pragma omp parallel for schedule(dynamic)
    for (int i = 0; i < blocks; ++i)
      libxsmm_spmdm_compute_fp32_thread(&state->handle, transpose, 'N', &one,
                                        state->slices, in, 'N', &zero, out, i,
                                        omp_get_thread_num(), threads);
  };
  return true;
}

/// Tokens that one call of the batch-reduce product takes.
static constexpr int tile = 64;

/// out[line] = the sum over the blocks of the line of (block) in[column]: a
/// call per line and token tile, in libxsmm's column-major words.
static bool makeBatchReduce(Peer &peer, Op op, const Problem &p) {
  if (p.x16 || p.tokens % tile || std::min(p.blockRows, p.blockCols) < 4)
    return false;
  const float alpha = 1, beta = 0;
  const int none = LIBXSMM_GEMM_FLAG_NONE, prefetch = LIBXSMM_PREFETCH_NONE;
  const int tokens = p.tokens;
  const int br = p.blockRows, bc = p.blockCols;
  const Problem *problem = &p;

  if (op == Op::SDDMM) {
    // Column-major: block^T [bc, br] = dy^T [bc, tokens] x [tokens, br]; x is
    // read feature by feature, dy token by token.
    const int cols = p.cols;
    auto kernel = libxsmm_smmdispatch(bc, br, tokens, &cols, &tokens, &bc,
                                      &alpha, &beta, &none, &prefetch);
    if (!kernel)
      return false;
    auto blockRow = std::make_shared<std::vector<int>>(p.blocks);
    for (int row = 0; row < p.rows / br; ++row)
      for (int k = p.rowPtr[row]; k < p.rowPtr[row + 1]; ++k)
        (*blockRow)[k] = row;
    float *out = peer.allocate(p.blocks * br * bc, Blocks);
    peer.run = [=] {
#pragma omp parallel for schedule(static)
      for (int64_t k = 0; k < problem->blocks; ++k)
        kernel(problem->dy + problem->colIdx[k] * bc,
               problem->xT + int64_t((*blockRow)[k]) * br * tokens,
               out + k * br * bc);
    };
    return true;
  }

  // Column-major: y [tile, out of a block] += x [tile, in of a block] * A, with
  // A [in, out] column by column: row by row of its transpose, which is the
  // block itself for dx = dy W^T and must be transposed for y = x W.
  bool forward = op == Op::SpMM;
  const int in = forward ? br : bc, out = forward ? bc : br;
  Features features(op, p);
  auto kernel = libxsmm_smmdispatch_reducebatch_addr(
      tile, out, in, &tokens, &in, &tokens, &alpha, &beta, &none, &prefetch);
  if (!kernel)
    return false;
  auto transposed =
      std::make_shared<std::vector<float>>(forward ? p.blocks * br * bc : 0);
  const float *source = forward ? p.xT : p.dyT;
  float *result = peer.allocate(features.out * p.tokens, FeatureMajor);
  peer.run = [=] {
    const Problem &q = *problem;
    const int32_t *ptr = forward ? q.colPtr : q.rowPtr;
    const int32_t *idx = forward ? q.rowIdx : q.colIdx;
    const float *values = q.values;
    if (forward) {
#pragma omp parallel for schedule(static)
      for (int64_t k = 0; k < q.blocks; ++k)
        for (int r = 0; r < br; ++r)
          for (int c = 0; c < bc; ++c)
            (*transposed)[(k * bc + c) * br + r] =
                q.values[(k * br + r) * bc + c];
      values = transposed->data();
    }
    int64_t lines = features.out / out;
#pragma omp parallel for schedule(static)
    for (int t = 0; t < tokens; t += tile) {
      std::vector<const float *> xs(features.in / in), blocks(xs.size());
      for (int64_t line = 0; line < lines; ++line) {
        float *y = result + line * out * tokens + t;
        unsigned long long count = 0;
        for (int k = ptr[line]; k < ptr[line + 1]; ++k, ++count) {
          int64_t block = forward ? q.slotT[k] : k;
          xs[count] = source + int64_t(idx[k]) * in * tokens + t;
          blocks[count] = values + block * br * bc;
        }
        if (count)
          kernel(xs.data(), blocks.data(), y, &count);
        else
          for (int i = 0; i < out; ++i)
            std::memset(y + int64_t(i) * tokens, 0, tile * sizeof(float));
      }
    }
  };
  return true;
}
#endif

//===----------------------------------------------------------------------===//
// The C interface
//===----------------------------------------------------------------------===//

static const std::map<std::string, Factory> factories = {
#ifdef HAVE_ONEDNN
    {"onednn", makeOneDNN},
#endif
#ifdef HAVE_OPENBLAS
    {"openblas", makeOpenBLAS},
#endif
#ifdef HAVE_EIGEN
    {"eigen", makeEigen},
#endif
#ifdef HAVE_LIBXSMM
    {"libxsmm-spmdm", makeSpMDM}, {"libxsmm-brgemm", makeBatchReduce},
#endif
};

void *bsr_peer_create(const char *impl, const char *op,
                      const Problem *problem) {
  static const std::map<std::string, Op> ops = {
      {"spmm", Op::SpMM},
      {"spmm_transposed", Op::SpMMTransposed},
      {"sddmm", Op::SDDMM}};
  auto factory = factories.find(impl);
  auto known = ops.find(op);
  if (factory == factories.end() || known == ops.end())
    return nullptr;
  auto peer = std::make_unique<Peer>();
  try {
    if (!factory->second(*peer, known->second, *problem))
      return nullptr;
  } catch (const std::exception &) {
    // A library that can't do this on this processor is one that can't do it.
    return nullptr;
  }
  return peer.release();
}

void bsr_peer_run(void *peer) { static_cast<Peer *>(peer)->run(); }

const void *bsr_peer_result(void *handle, int32_t *layout, int32_t *isBF16) {
  Peer &peer = *static_cast<Peer *>(handle);
  *layout = peer.layout;
  *isBF16 = !peer.result16.empty();
  return *isBF16 ? static_cast<const void *>(peer.result16.data())
                 : peer.result.data();
}

void bsr_peer_destroy(void *peer) { delete static_cast<Peer *>(peer); }

const char *bsr_peers() {
  static const std::string names = [] {
    std::string text;
    for (auto &[name, factory] : factories)
      text += name + "\n";
    return text;
  }();
  return names.c_str();
}

#if defined(__AVX512F__)
static constexpr int width = 16;
#elif defined(__AVX__)
static constexpr int width = 8;
#else
static constexpr int width = 4;
#endif
using Vector = float __attribute__((vector_size(width * sizeof(float))));

/// The sums of a loop of dependent multiply-adds, enough of them at a time to
/// hide their latency.
static float multiplyAdd(int64_t rounds) {
  constexpr int chains = 10;
  Vector sums[chains] = {}, factor = Vector{} + 0.999f, term = Vector{} + 0.5f;
  for (int64_t i = 0; i < rounds; ++i)
    for (int j = 0; j < chains; ++j)
      sums[j] = sums[j] * factor + term;
  float total = 0;
  for (const Vector &sum : sums)
    total += sum[0];
  return total;
}

double bsr_measure_peak(int32_t threads) {
  constexpr int64_t rounds = 2000000, chains = 10;
  double best = 0;
  for (int repeat = 0; repeat < 10; ++repeat) {
    float total = 0;
    auto start = std::chrono::steady_clock::now();
#pragma omp parallel num_threads(threads) reduction(+ : total)
    total += multiplyAdd(rounds);
    std::chrono::duration<double> time =
        std::chrono::steady_clock::now() - start;
    // The sum is looked at, so that it is taken.
    if (total > 0)
      best = std::max(best,
                      2.0 * width * chains * rounds * threads / time.count());
  }
  return best;
}
