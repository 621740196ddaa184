#include "tests/tools/small_model.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "tests/support/seed.h"
#include "tools/weft/numbers.h"

namespace weft::testing {
namespace {

StoredTensor Draw(std::mt19937_64& random, const std::string& name, const std::string& dtype,
                  std::vector<std::int64_t> shape, double deviation) {
  StoredTensor tensor{name, dtype, std::move(shape), {}};
  std::int64_t count = 1;
  for (const std::int64_t extent : tensor.shape) count *= extent;
  std::normal_distribution<double> normal(0, deviation);
  std::vector<double> values(static_cast<std::size_t>(count));
  for (double& value : values) value = normal(random);
  const auto put = [&](const auto& typed) {
    tensor.data.resize(typed.size() * sizeof(typed[0]));
    if (!typed.empty()) std::memcpy(tensor.data.data(), typed.data(), tensor.data.size());
  };
  if (dtype == "F64") {
    put(values);
  } else if (dtype == "F32") {
    put(std::vector<float>(values.begin(), values.end()));
  } else {
    std::vector<std::uint16_t> halves;
    for (const double value : values) {
      const auto narrow = static_cast<float>(value);
      halves.push_back(dtype == "F16" ? tool::FloatToHalf(narrow) : tool::FloatToBf16(narrow));
    }
    put(halves);
  }
  return tensor;
}

std::vector<StoredTensor> Floats(std::uint64_t stream, double deviation) {
  std::mt19937_64 random(Seed() + stream);
  std::vector<StoredTensor> tensors;
  const auto add = [&](const char* name, const char* dtype, std::vector<std::int64_t> shape) {
    tensors.push_back(Draw(random, name, dtype, std::move(shape), deviation));
  };
  add("wte", "F32", {18, 5});
  add("h.0.square", "F32", {8, 8});
  add("h.0.wide", "F32", {7, 12});
  add("h.0.bias", "F32", {11});
  add("h.1.row", "F32", {1, 9});
  add("h.1.column", "F32", {9, 1});
  add("h.1.bf16", "BF16", {6, 10});
  add("h.1.conv", "F32", {2, 3, 1, 2});
  add("h.2.half", "F16", {5, 6});
  add("h.2.double", "F64", {6, 4});
  add("h.2.scalar", "F32", {});
  return tensors;
}

}  // namespace

std::vector<double> StoredTensor::Values() const {
  const tool::FileFloat type = *tool::FileFloatOf(dtype);
  const std::size_t count = data.size() / static_cast<std::size_t>(*SafetensorsElementBytes(dtype));
  std::vector<double> values(count);
  if (type == tool::FileFloat::kF64) {
    if (count != 0) std::memcpy(values.data(), data.data(), data.size());
    return values;
  }
  std::vector<float> working(count);
  tool::FromFile(type, data.data(), static_cast<std::int64_t>(count), working.data());
  for (std::size_t i = 0; i < count; ++i) {
    values[i] =
        tool::ValueAt(tool::WorkingType(type), working.data(), static_cast<std::int64_t>(i));
  }
  return values;
}

std::vector<StoredTensor> SmallModel(std::uint64_t stream) {
  std::vector<StoredTensor> tensors = Floats(stream, 0.1);
  std::mt19937_64 random(Seed() + stream + 1000);
  tensors.push_back(Draw(random, "frozen", "F32", {4, 3}, 1.0));
  tensors.push_back(Draw(random, "h.0.empty", "F32", {0, 3}, 1.0));
  StoredTensor ids{"ids", "I64", {3}, std::vector<std::byte>(24)};
  StoredTensor mask{"mask", "BOOL", {3}, std::vector<std::byte>(3)};
  for (StoredTensor* tensor : {&ids, &mask}) {
    for (std::byte& byte : tensor->data) byte = static_cast<std::byte>(random() & 1);
    tensors.push_back(*tensor);
  }
  return tensors;
}

std::vector<StoredTensor> SmallGradients(std::uint64_t stream) {
  return Floats(stream + 2000, 0.01);
}

void Store(const std::string& path, const std::vector<StoredTensor>& tensors,
           const std::map<std::string, std::string>& metadata) {
  std::vector<SafetensorsTensor> written;
  for (const StoredTensor& tensor : tensors) {
    written.push_back({tensor.name, tensor.dtype, tensor.shape, tensor.data});
  }
  const absl::Status status = WriteSafetensors(path, written, metadata);
  ASSERT_TRUE(status.ok()) << status;
}

std::map<std::string, StoredTensor> Load(const std::string& path) {
  std::map<std::string, StoredTensor> tensors;
  const auto reader = SafetensorsReader::Open(path);
  EXPECT_TRUE(reader.ok()) << reader.status();
  if (!reader.ok()) return tensors;
  for (const SafetensorsEntry& entry : (*reader)->entries()) {
    auto data = (*reader)->ReadAll(entry);
    EXPECT_TRUE(data.ok()) << data.status();
    if (data.ok()) tensors[entry.name] = {entry.name, entry.dtype, entry.shape, *std::move(data)};
  }
  return tensors;
}

std::vector<double> ReferenceSteps(const StoredTensor& weight, const StoredTensor& gradient,
                                   const reference::MuonSettings& muon,
                                   const reference::AdamWSettings& adamw, int steps) {
  std::vector<double> w = weight.Values();
  const std::vector<double> g = gradient.Values();
  std::vector<double> m(w.size(), 0.0), v(w.size(), 0.0);
  for (int step = 1; step <= steps; ++step) {
    if (weight.shape.size() == 2) {
      reference::MuonStep(muon, weight.shape[0], weight.shape[1], g, m, w);
    } else {
      reference::AdamWStep(adamw, step, g, m, v, w);
    }
  }
  return w;
}

}  // namespace weft::testing
