#include "plugins/nccl/tuner_config.h"

#include <charconv>
#include <optional>

#include "plugins/nccl/process.h"
#include "plugins/nccl/tuner_abi.h"

namespace weft::nccl_plugin {
namespace {

constexpr std::size_t kMaxText = 64 << 10;
constexpr std::size_t kMaxRules = 64;  // looked through for every collective
constexpr std::size_t kMaxChannels = 64;

// The next part of `text` before one of `separators`, which is taken from it too.
std::string_view Next(std::string_view* text, std::string_view separators) {
  const std::size_t end = text->find_first_of(separators);
  const std::string_view part = text->substr(0, end);
  text->remove_prefix(end == std::string_view::npos ? text->size() : end + 1);
  return part;
}

std::optional<std::size_t> ParseNumber(std::string_view text, bool bytes) {
  std::size_t shift = 0;
  if (bytes && !text.empty()) {
    const std::size_t unit = std::string_view("KMG").find(text.back());
    if (unit != std::string_view::npos) {
      shift = 10 * (unit + 1);
      text.remove_suffix(1);
    }
  }
  std::size_t number = 0;
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (text.empty() || fault != std::errc() || end != text.data() + text.size()) return std::nullopt;
  if (number > (static_cast<std::size_t>(-1) >> shift)) return std::nullopt;
  return number << shift;
}

bool ParseRange(std::string_view text, bool bytes, Range* range) {
  const bool open = text.find('-') != std::string_view::npos;
  const std::optional<std::size_t> low = ParseNumber(Next(&text, "-"), bytes);
  if (!low) return false;
  range->low = *low;
  range->high = open ? static_cast<std::size_t>(-1) : *low;
  if (text.empty()) return true;
  const std::optional<std::size_t> high = ParseNumber(text, bytes);
  if (!high || *high < *low) return false;
  range->high = *high;
  return true;
}

bool ParseProtocol(std::string_view text, int* protocol) {
  *protocol = text == "ll" ? kLl : text == "ll128" ? kLl128 : text == "simple" ? kSimple : -1;
  return *protocol >= 0;
}

bool ParseChannels(std::string_view text, int* channels) {
  const std::optional<std::size_t> number = ParseNumber(text, false);
  if (!number || *number < 1 || *number > kMaxChannels) return false;
  *channels = static_cast<int>(*number);
  return true;
}

bool ParseValue(std::string_view key, std::string_view value, Rule* rule) {
  if (key == "ranks") return ParseRange(value, false, &rule->ranks);
  if (key == "nodes") return ParseRange(value, false, &rule->nodes);
  if (key == "bytes") return ParseRange(value, true, &rule->bytes);
  if (key == "proto") return ParseProtocol(value, &rule->protocol);
  return key == "channels" && ParseChannels(value, &rule->channels);
}

// Empty when `statement` is a rule, otherwise what is wrong with it.
std::string ParseRule(std::string_view statement, Rule* rule) {
  std::string seen = " ";
  bool named = false;
  while (!statement.empty()) {
    const std::string_view word = Next(&statement, " \t\r");
    if (word.empty()) continue;
    std::string_view value = word;
    const std::string key(Next(&value, "="));
    if (seen.find(" " + key + " ") != std::string::npos) return "'" + key + "' is there twice";
    seen += key + " ";
    if (word == "reduce" || word == "broadcast") {
      if (!named) rule->reduce = rule->broadcast = false;
      named = true;
      (word == "reduce" ? rule->reduce : rule->broadcast) = true;
    } else if (word == "nvlink") {
      rule->nvlink = true;
    } else if (!ParseValue(key, value, rule)) {
      std::string text = "'";
      text.append(word).append("' is not understood");
      return text;
    }
  }
  if (rule->protocol < 0 && rule->channels == 0) return "it has neither 'proto=' nor 'channels='";
  return "";
}

std::string_view Trim(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t\r");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1);
}

// Empty, or what is wrong.
std::string ParseText(std::string_view text, TunerConfig* config) {
  if (text.size() > kMaxText) return "it is longer than 64 KiB";
  int statements = 0;
  bool off = false;
  while (!text.empty()) {
    std::string_view line = Next(&text, "\n");
    line = line.substr(0, line.find('#'));
    while (!line.empty()) {
      const std::string_view statement = Trim(Next(&line, ";"));
      if (statement.empty()) continue;
      ++statements;
      if (statement == "off") {
        off = true;
      } else if (statement == "default") {
        config->derived = true;
      } else {
        Rule rule;
        const std::string fault = ParseRule(statement, &rule);
        if (!fault.empty()) return "in '" + std::string(statement) + "' " + fault;
        if (config->rules.size() == kMaxRules) return "it has more than 64 rules";
        config->rules.push_back(rule);
      }
    }
  }
  if (off && statements > 1) return "'off' does not stand alone";
  if (statements == 0) config->derived = true;
  return "";
}

}  // namespace

bool ParseTunerConfig(std::string_view text, TunerConfig* config, std::string* error) {
  *config = {};
  *error = ParseText(text, config);
  if (error->empty()) return true;
  *config = {};
  return false;
}

bool ReadTunerConfig(const std::string& value, TunerConfig* config, std::string* error) {
  if (value.empty() || value[0] != '@') return ParseTunerConfig(value, config, error);
  const std::optional<std::string> text = ReadFile(value.substr(1), kMaxText);
  if (text) return ParseTunerConfig(*text, config, error);
  *config = {};
  *error = "the file " + value.substr(1) + " cannot be read, or is longer than 64 KiB";
  return false;
}

}  // namespace weft::nccl_plugin
