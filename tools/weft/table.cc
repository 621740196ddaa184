#include "tools/weft/table.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <utility>

#include "tools/weft/visible.h"

namespace weft::tool {
namespace {

struct Unit {
  double size;
  const char* name;
};

// The largest unit that is not larger than the value; the last one for what is smaller.
template <std::size_t kUnits>
std::string WithUnit(double value, const Unit (&units)[kUnits]) {
  const Unit* unit = std::find_if(std::begin(units), std::end(units), [&](const Unit& candidate) {
    return std::abs(value) >= candidate.size;
  });
  if (unit == std::end(units)) --unit;
  return NumberText(value / unit->size) + " " + unit->name;
}

}  // namespace

Table::Table(std::vector<std::string> header) {
  for (std::size_t i = 0; i < header.size(); ++i) {
    const bool marked = !header[i].empty() && header[i].front() == '<';
    if (marked) header[i].erase(0, 1);
    left_.push_back(i == 0 || marked);
  }
  rows_.push_back(std::move(header));
}

void Table::Add(std::vector<std::string> row) {
  row.resize(left_.size());
  for (std::string& cell : row) cell = Visible(cell);
  rows_.push_back(std::move(row));
}

void Table::Print(std::ostream& out) const {
  std::vector<std::size_t> widths(left_.size(), 0);
  for (const auto& row : rows_) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  for (const auto& row : rows_) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      const std::string padding(widths[i] - row[i].size(), ' ');
      if (i != 0) line += "  ";
      line += left_[i] ? row[i] + padding : padding + row[i];
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out << line << "\n";
  }
}

std::string NumberText(double value, int digits) {
  char text[64];
  const double magnitude = std::abs(value);
  if (value == 0 || !std::isfinite(value) || magnitude < 1e-4 || magnitude >= 1e6) {
    std::snprintf(text, sizeof(text), "%.*g", digits, value);
    return text;
  }
  const int before = static_cast<int>(std::floor(std::log10(magnitude))) + 1;
  std::snprintf(text, sizeof(text), "%.*f", std::max(0, digits - before), value);
  return text;
}

std::string BytesText(double bytes) {
  if (bytes < 1000) return NumberText(bytes, 1) + " B";
  static constexpr Unit kUnits[] = {{1e12, "TB"}, {1e9, "GB"}, {1e6, "MB"}, {1e3, "kB"}};
  return WithUnit(bytes, kUnits);
}

std::string SecondsText(double seconds) {
  static constexpr Unit kUnits[] = {{1, "s"}, {1e-3, "ms"}, {1e-6, "us"}};
  return seconds == 0 ? "0 s" : WithUnit(seconds, kUnits);
}

std::string FlopsText(double flops) {
  static constexpr Unit kUnits[] = {
      {1e15, "PFLOP"}, {1e12, "TFLOP"}, {1e9, "GFLOP"}, {1e6, "MFLOP"}, {1, "FLOP"}};
  return WithUnit(flops, kUnits);
}

}  // namespace weft::tool
