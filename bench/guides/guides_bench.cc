// SPDX-License-Identifier: Apache-2.0
// What a guide costs: to compile, and at each token of a text the mask and the step behind it, over
// a vocabulary of 128,256 tokens as those of Llama 3 are made: bytes, numbers up to 999, runs of
// blanks, punctuation, and words with and without a blank before them, made up of syllables. The
// text is one that the guide allows, cut into the longest tokens; it is read twice, since masks of
// states are found when a text first stands there. Prints CSV: microseconds, the median and the
// range from 10 to 90 %, and the largest.
//
//   guides_bench [--repeats N]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <random>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "inflight/guide.h"

namespace inflight {
namespace {

constexpr size_t kVocabSize = 128'256;
constexpr size_t kLongestToken = 24;

using Clock = std::chrono::steady_clock;
using Kind = GuideSpec::Kind;

double MicrosecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

std::vector<std::string> Vocabulary() {
  std::vector<std::string> texts;
  std::unordered_set<std::string> known;
  const auto add = [&](std::string text) {
    if (texts.size() < kVocabSize - 256 && known.insert(text).second)
      texts.push_back(std::move(text));
  };
  for (int byte = 0; byte < 256; ++byte) add(std::string(1, static_cast<char>(byte)));
  for (int number = 0; number < 1000; ++number) {
    for (const char* format : {"%d", "%02d", "%03d"}) {
      char text[8];
      std::snprintf(text, sizeof(text), format, number);
      add(text);
    }
  }
  for (size_t size = 2; size < 80; ++size) {
    for (const char c : {' ', '\t', '\n', '-', '=', '*', '#', '.'}) add(std::string(size, c));
    add("\n" + std::string(size, ' '));
  }
  constexpr std::string_view kMarks = "\"'{}[]():,.;!?<>/\\-_+=*&|#@$%^~`";
  for (const char a : kMarks) {
    add({' ', a});
    add({a, '\n'});
    for (const char b : kMarks) {
      add({a, b});
      add({' ', a, b});
      for (const char c : std::string_view("\"{}[],:\n ")) add({a, b, c});
    }
  }
  std::mt19937 random(1);
  const std::vector<std::string> begins = {"b",  "c",  "d",  "f", "g",        "h",       "k", "l",
                                           "m",  "n",  "p",  "r", "s",        "t",       "v", "w",
                                           "st", "tr", "ch", "",  "\xC3\xA9", "\xD0\xBA"};
  const std::vector<std::string> ends = {"a",  "e",  "i",  "o",  "u",   "an",
                                         "er", "in", "on", "al", "ing", "ed"};
  while (texts.size() < kVocabSize - 256) {
    std::string word;
    for (size_t count = 1 + random() % 4; count > 0; --count) {
      word += begins[random() % begins.size()] + ends[random() % ends.size()];
    }
    const auto mark = kMarks[random() % kMarks.size()];
    switch (random() % 8) {
      case 0:
        add(mark + word);
        break;
      case 1:
        add(word + mark);
        break;
      case 2:
        word[0] = static_cast<char>(std::toupper(word[0]));
        [[fallthrough]];
      case 3:
        add(word);
        break;
      default:
        add(" " + word);
    }
  }
  texts.resize(kVocabSize);  // the rest are special tokens, without a text
  return texts;
}

std::vector<TokenId> Cut(std::string_view text, const std::vector<std::string>& vocabulary) {
  std::unordered_map<std::string_view, TokenId> ids;
  for (size_t id = 0; id < vocabulary.size(); ++id) {
    if (!vocabulary[id].empty()) ids.emplace(vocabulary[id], static_cast<TokenId>(id));
  }
  std::vector<TokenId> cut;
  while (!text.empty()) {
    size_t size = std::min(text.size(), kLongestToken);
    while (!ids.contains(text.substr(0, size))) --size;
    cut.push_back(ids.at(text.substr(0, size)));
    text.remove_prefix(size);
  }
  return cut;
}

struct Case {
  const char* name;
  GuideSpec spec;
  std::string text;
};

std::vector<Case> Cases() {
  const std::string words = "one of the tonal bedin stration, chal: \\\"vo\\\" in kanina; ";
  std::string prose;
  for (int i = 0; i < 12; ++i) prose += words;
  const std::string person =
      R"({"name": "Marona Tristan", "age": 42, "email": "m@chan.de", "address": )"
      R"({"street": "Solan 12", "city": "Bodin", "zip": "12345"}, "tags": ["one", "stan"], )"
      R"("note": ")" +
      prose + "\"}";
  const std::string schema = R"({"type": "object", "properties": {"name": {"type": "string"},
    "age": {"type": "integer", "minimum": 0, "maximum": 150}, "email": {"type": "string", "format": "email"},
    "address": {"type": "object", "properties": {"street": {"type": "string"}, "city": {"type": "string"},
      "zip": {"type": "string", "pattern": "^[0-9]{5}$"}}, "required": ["street", "city"], "additionalProperties": false},
    "tags": {"type": "array", "items": {"type": "string"}}, "note": {"type": "string", "maxLength": 2000}},
    "required": ["name", "age"], "additionalProperties": false})";
  std::string sum = "12";
  for (int i = 0; i < 60; ++i) sum += "+(3*" + std::to_string(i) + ")-x";
  return {
      {"json", {.kind = Kind::kJson}, person},
      {"json_schema", {.kind = Kind::kJsonSchema, .text = schema}, person},
      {"regex",
       {.kind = Kind::kRegex, .text = R"(([a-z]+ ?[,.;:]? ?|\d{4}-\d\d-\d\d )+)"},
       "one of the tonal, 2024-01-02 in bedin stration " + std::string("on an inal, ") +
           "chal kanina."},
      {"choice",
       {.kind = Kind::kChoice, .text = R"(["positive result", "negative result", "neutral"])"},
       "negative result"},
      {"grammar",
       {.kind = Kind::kGrammar,
        .text = "root ::= sum\nsum ::= product ([+-] product)*\nproduct ::= value (\"*\" value)*\n"
                "value ::= [0-9]+ | [a-z]+ | \"(\" sum \")\""},
       sum},
  };
}

void Print(const char* name, const char* what, std::vector<double> us) {
  std::ranges::sort(us);
  const auto at = [&](double part) {
    return us[static_cast<size_t>(part * static_cast<double>(us.size() - 1))];
  };
  std::printf("%s,%s,%zu,%.2f,%.2f,%.2f,%.2f\n", name, what, us.size(), at(0.5), at(0.1), at(0.9),
              us.back());
}

// Each step's mask and token; false where the guide does not take the text.
bool Read(const Guide& guide, const std::vector<TokenId>& tokens, std::vector<double>& mask_us,
          std::vector<double>& accept_us) {
  std::vector<uint32_t> mask((static_cast<size_t>(guide.num_tokens()) + 31) / 32);
  const auto state = guide.Begin();
  for (const TokenId token : tokens) {
    Clock::time_point begin = Clock::now();
    if (!state->Mask(mask)) return false;
    mask_us.push_back(MicrosecondsSince(begin));
    begin = Clock::now();
    if (!state->Accept(token)) return false;
    accept_us.push_back(MicrosecondsSince(begin));
  }
  return state->CanEnd();
}

bool Run(const Case& one, const std::vector<std::string>& vocabulary,
         const std::shared_ptr<const TokenTexts>& texts, int repeats) {
  const std::vector<TokenId> tokens = Cut(one.text, vocabulary);
  std::vector<double> compile_us;
  std::shared_ptr<const Guide> guide;
  for (int i = 0; i < repeats; ++i) {
    const auto begin = Clock::now();
    auto made = MakeGuide(one.spec, texts);
    compile_us.push_back(MicrosecondsSince(begin));
    if (!made.ok()) {
      std::fprintf(stderr, "%s: %s\n", one.name, made.status().ToString().c_str());
      return false;
    }
    guide = *std::move(made);
  }
  Print(one.name, "compile", compile_us);
  std::vector<double> first_us;
  std::vector<double> mask_us;
  std::vector<double> accept_us;
  if (!Read(*guide, tokens, first_us, accept_us)) {
    std::fprintf(stderr, "%s: does not take its text\n", one.name);
    return false;
  }
  accept_us.clear();
  for (int i = 0; i < repeats; ++i) {
    if (!Read(*guide, tokens, mask_us, accept_us)) return false;
  }
  Print(one.name, "mask, first text", first_us);
  Print(one.name, "mask", mask_us);
  Print(one.name, "accept", accept_us);
  std::printf("%s,KiB held,,%llu,,,\n", one.name,
              static_cast<unsigned long long>(guide->bytes() >> 10));
  return true;
}

std::string CpuModel() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "CPU of unknown model";
}

}  // namespace
}  // namespace inflight

int main(int argc, char** argv) {
  using namespace inflight;  // NOLINT(google-build-using-namespace)
  int repeats = 20;
  if (argc == 3 && std::strcmp(argv[1], "--repeats") == 0)
    repeats = std::max(1, std::atoi(argv[2]));
  const std::vector<std::string> vocabulary = Vocabulary();
  const auto texts = MakeTokenTexts(vocabulary);
  // What all guides of a vocabulary share is made by the first and stays while this one does.
  const auto kept = MakeGuide({.kind = Kind::kChoice, .text = R"(["x"])"}, texts);
  std::printf("# %s, %zu tokens, times in us\n", CpuModel().c_str(), vocabulary.size());
  std::printf("guide,what,count,median,p10,p90,max\n");
  bool is_done = kept.ok();
  for (const Case& one : Cases()) is_done = Run(one, vocabulary, texts, repeats) && is_done;
  return is_done ? 0 : 1;
}
