// Kernels over strided batches of matrices, tile by tile.
#pragma once

#include <cstdint>

#include "device/cuda/block_size.h"
#include "device/cuda/kernels_vector.h"
#include "device/half.h"
#include "device/host_device.h"
#include "weft/math.h"

namespace weft::device {

// A Matrix with the type of its elements.
template <typename T>
struct TypedMatrix {
  T* data;
  std::int64_t rows;
  std::int64_t cols;
  std::int64_t row_stride;
  std::int64_t batch;
  std::int64_t batch_stride;

  explicit TypedMatrix(const Matrix& matrix)
      : data(static_cast<T*>(matrix.data)),
        rows(matrix.rows),
        cols(matrix.cols),
        row_stride(matrix.row_stride),
        batch(matrix.batch),
        batch_stride(matrix.batch_stride) {}

  WEFT_HD T* At(std::int64_t b, std::int64_t i, std::int64_t j) const {
    return data + b * batch_stride + i * row_stride + j;
  }

  std::int64_t Tiles() const { return batch * PartsOf(rows, kTile) * PartsOf(cols, kTile); }

  template <typename Visit>
  void Accesses(Visit& visit, bool write) const {
    for (std::int64_t b = 0; b < batch; ++b) {
      visit(At(b, 0, 0), rows, cols * std::int64_t{sizeof(T)}, row_stride * std::int64_t{sizeof(T)},
            write);
    }
  }
};

// Which rows and columns of which matrix a block takes.
struct TilePlace {
  std::int64_t batch;
  std::int64_t row;
  std::int64_t col;
  std::int64_t height;
  std::int64_t width;
};

WEFT_HD inline TilePlace PlaceOf(std::int64_t index, std::int64_t rows, std::int64_t cols) {
  const std::int64_t across = PartsOf(cols, kTile);
  const std::int64_t each = PartsOf(rows, kTile) * across;
  TilePlace place{};
  place.batch = index / each;
  place.row = index % each / across * kTile;
  place.col = index % each % across * kTile;
  place.height = rows - place.row < kTile ? rows - place.row : kTile;
  place.width = cols - place.col < kTile ? cols - place.col : kTile;
  return place;
}

// fn(i, j) for the elements of the block's tile, counted from its corner.
template <typename Block, typename Fn>
WEFT_HD void ForTile(Block& block, std::int64_t height, std::int64_t width, Fn fn) {
  block.ForEach(std::int64_t{kTile} * kTile, [&](std::int64_t k) {
    const std::int64_t i = k / kTile;
    const std::int64_t j = k % kTile;
    if (i < height && j < width) fn(i, j);
  });
}

// What X is multiplied by.
struct MapFactor {
  enum Kind : std::int32_t { kOne, kConstant, kOverNorm, kZero };
  Kind kind = kOne;
  double constant = 1;
  // kOverNorm: sums of squares, `parts` per matrix, and Math::Normalize's floor.
  const double* sums = nullptr;
  std::int64_t parts = 0;
  float floor = 0;
  bool clamp = false;
};

// Comparisons are written so that a NaN norm reaches X.
WEFT_HD inline double FactorOfNorm(double norm, float floor, bool clamp) {
  double factor = 1 / norm;
  if (norm < floor) factor = clamp ? 1 / static_cast<double>(floor) : 0;
  if (norm == 0) factor = 0;
  return factor;
}

// Y = factor * op(X); the product is formed in double, so that a factor outside fp32's range works.
// X is not read where the factor is kZero.
template <typename From, typename To>
struct MapMatrix {
  TypedMatrix<const From> x;
  TypedMatrix<To> y;
  bool transpose;
  MapFactor factor;

  std::int64_t Blocks() const { return x.Tiles(); }

  template <typename Block>
  WEFT_HD void operator()(Block& block, std::int64_t index) const {
    const TilePlace place = PlaceOf(index, x.rows, x.cols);
    double by = factor.constant;
    if (factor.kind == MapFactor::kOverNorm) {
      const double* sums = factor.sums + place.batch * factor.parts;
      const double sum = block.Sum(factor.parts, [&](std::int64_t i) { return sums[i]; });
      by = FactorOfNorm(std::sqrt(sum), factor.floor, factor.clamp);
    }
    const auto value = [&](std::int64_t i, std::int64_t j) {
      if (factor.kind == MapFactor::kZero) return 0.0f;
      const float from = Load(x.At(place.batch, place.row + i, place.col + j));
      return factor.kind == MapFactor::kOne ? from : static_cast<float>(from * by);
    };
    if (!transpose) {
      ForTile(block, place.height, place.width, [&](std::int64_t i, std::int64_t j) {
        Store(value(i, j), y.At(place.batch, place.row + i, place.col + j));
      });
      return;
    }
    auto* tile = block.template Shared<float>();
    ForTile(block, place.height, place.width,
            [&](std::int64_t i, std::int64_t j) { tile[i * (kTile + 1) + j] = value(i, j); });
    ForTile(block, place.width, place.height, [&](std::int64_t j, std::int64_t i) {
      Store(tile[i * (kTile + 1) + j], y.At(place.batch, place.col + j, place.row + i));
    });
  }

  template <typename Visit>
  void Accesses(std::int64_t, Visit visit) const {
    if (factor.kind == MapFactor::kOverNorm) {
      VisitVector(visit, factor.sums, x.batch * factor.parts, false);
    }
    if (factor.kind != MapFactor::kZero) x.Accesses(visit, false);
    y.Accesses(visit, true);
  }
};

// Y = X + shift * I.
template <typename T>
struct ShiftDiagonalMatrix {
  TypedMatrix<const T> x;
  float shift;
  TypedMatrix<T> y;

  std::int64_t Blocks() const { return x.Tiles(); }

  template <typename Block>
  WEFT_HD void operator()(Block& block, std::int64_t index) const {
    const TilePlace place = PlaceOf(index, x.rows, x.cols);
    ForTile(block, place.height, place.width, [&](std::int64_t i, std::int64_t j) {
      const T* from = x.At(place.batch, place.row + i, place.col + j);
      T* to = y.At(place.batch, place.row + i, place.col + j);
      if (place.row + i == place.col + j) {
        Store(Load(from) + shift, to);
      } else {
        *to = *from;
      }
    });
  }

  template <typename Visit>
  void Accesses(std::int64_t, Visit visit) const {
    x.Accesses(visit, false);
    y.Accesses(visit, true);
  }
};

// ApplyVector on what is no vector.
template <typename W>
struct ApplyTiles {
  TypedMatrix<const float> direction;
  float decay;
  float step;
  TypedMatrix<W> weight;
  const StepControl* control;

  std::int64_t Blocks() const { return weight.Tiles(); }

  template <typename Block>
  WEFT_HD void operator()(Block& block, std::int64_t index) const {
    if (Skips(control)) return;
    const float keep = 1 - decay;
    const TilePlace place = PlaceOf(index, weight.rows, weight.cols);
    ForTile(block, place.height, place.width, [&](std::int64_t i, std::int64_t j) {
      W* w = weight.At(place.batch, place.row + i, place.col + j);
      const float* d = direction.At(place.batch, place.row + i, place.col + j);
      Store(Load(w) * keep - step * *d, w);
    });
  }

  template <typename Visit>
  void Accesses(std::int64_t, Visit visit) const {
    direction.Accesses(visit, false);
    weight.Accesses(visit, false);
    weight.Accesses(visit, true);
    VisitControl(visit, control);
  }
};

// D[j][i] = D[i][j] for j < i, in place: each block writes the image of one tile, which no other
// block reads.
template <typename T>
struct MirrorMatrix {
  TypedMatrix<T> d;

  std::int64_t Blocks() const { return d.Tiles(); }

  template <typename Block>
  WEFT_HD void operator()(Block& block, std::int64_t index) const {
    const TilePlace place = PlaceOf(index, d.rows, d.cols);
    if (place.col > place.row) return;
    auto* tile = block.template Shared<T>();
    ForTile(block, place.height, place.width, [&](std::int64_t i, std::int64_t j) {
      tile[i * (kTile + 1) + j] = *d.At(place.batch, place.row + i, place.col + j);
    });
    ForTile(block, place.width, place.height, [&](std::int64_t j, std::int64_t i) {
      if (place.col + j >= place.row + i) return;
      *d.At(place.batch, place.col + j, place.row + i) = tile[i * (kTile + 1) + j];
    });
  }

  template <typename Visit>
  void Accesses(std::int64_t, Visit visit) const {
    d.Accesses(visit, false);
    d.Accesses(visit, true);
  }
};

}  // namespace weft::device
