// Text for people: columns and units.
#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

namespace weft::tool {

// Prints columns wide enough for their cells; the first is flush left, the others flush right
// except where a header begins with '<'.
class Table {
 public:
  explicit Table(std::vector<std::string> header);
  // As many cells as the header has. They are printed as Visible().
  void Add(std::vector<std::string> row);
  void Print(std::ostream& out) const;

 private:
  std::vector<bool> left_;
  std::vector<std::vector<std::string>> rows_;
};

// "1.50 GB" (10^9), "12.3 ms", "1.44 TFLOP": three significant digits.
std::string BytesText(double bytes);
std::string SecondsText(double seconds);
std::string FlopsText(double flops);
// A number with `digits` significant digits.
std::string NumberText(double value, int digits = 3);

}  // namespace weft::tool
