// What a run goes on from: its options, and the state of a runtime as tensors for a trainer that
// has a checkpoint system of its own. The calls are Runtime's; docs/checkpoint.md has the format.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "weft/dtype.h"

#pragma GCC visibility push(default)
namespace weft {

// Whose weights are carried. Those of layout owned always are: nobody but Weft has them.
enum class CarriedWeights : std::uint8_t {
  kAll,   // also those in the trainer's memory, as it is registered
  kOwned  // the trainer saves and loads its own
};

struct SaveOptions {
  CarriedWeights weights = CarriedWeights::kAll;
  // Unit of checksums, and of copies from the device; 1 to 2^30. Reading one byte reads its block.
  std::int64_t block_bytes = std::int64_t{4} << 20;
};

struct LoadOptions {
  // kAll: the trainer's memory is written, which a checkpoint without its weights refuses.
  CarriedWeights weights = CarriedWeights::kAll;
  // Rules whose options differ from the saved ones (momentum, NS, betas, row blocks; not rates) are
  // refused. With this they are taken as registered, and rank 0 logs a warning for each.
  bool accept_other_options = false;
};

struct ExportOptions {
  CarriedWeights weights = CarriedWeights::kAll;
  // False: of what several ranks hold alike, each has a part, so that all ranks' ranges together
  // cover every tensor once: for saving. True: all that this rank holds: what ImportState() needs.
  bool every_copy = false;
  bool with_data = true;  // false: the ranges alone are told
};

// Part of a tensor of a matrix: rows of the whole, whatever grid, strategy or layout holds them.
// The shape is that of the logical matrix: padding_rows left out, matrices that are stored as one
// together.
struct StateTensor {
  std::string name;   // "<matrix>.momentum", ".exp_avg", ".exp_avg_sq", ".state" or ".weight"
  std::string dtype;  // as in safetensors: "F32"; of a weight "F32", "BF16" or "F16"; "U8" below
  // {rows, cols}. A custom rule's state: the same, where it has 4 bytes per element, else "U8"
  // {bytes}.
  std::vector<std::int64_t> shape;
  std::int64_t first_row = 0;   // of shape[0]
  std::int64_t rows = 0;        // 0: this rank holds none
  std::vector<std::byte> data;  // host memory, dense rows
};

struct ExportedState {
  // JSON: steps, the matrices with their rules' options, counts and rates. Equal on all ranks.
  std::string description;
  // The same names in the same order on all ranks.
  std::vector<StateTensor> tensors;
};

}  // namespace weft
#pragma GCC visibility pop
