// SPDX-License-Identifier: Apache-2.0
// Guides at the other end of a pipe, for tests: JSON lines in, JSON lines out.
//
//   {"op": "guide", "kind": K, "text": T, "begins_after": T, "tokens": [T, ...]}
//       -> {"num_tokens": n}: the guide that other lines are about. Its vocabulary are the 256
//          bytes, a token without any, and `tokens`.
//   {"op": "calls", "template": T, "functions": [{"name": T, "schema": T, "texts": [T, ...]}, ...],
//    "must_call": b, "max_calls": n, "tokens": [T, ...]} -> {"num_tokens": n}: the same of calls in
//          the format that the template shows; `schema` "" is any.
//   {"op": "read", "texts": [T, ...]} -> {"answers": [{"content": T, "reasoning": T, "calls":
//          [[name, arguments], ...]}, ...]}: as answers of that format are read.
//   {"op": "match", "texts": [T, ...]} -> {"matches": [b, ...]}: read by the longest tokens that
//          fit; each must be in the mask where it is accepted, and in none where it is not.
//   {"op": "walk", "seed": n, "count": n, "soft": n, "hard": n, "closing": [T, ...]}
//          -> {"texts": [T or null, ...]} each by tokens drawn from the masks; behind `soft` tokens
//          those of `closing`, or of JSON, come first, and before it now and then those of
//          `closing`; behind `hard` it is given up: null.
//
// K is one of json, schema, regex, choice, grammar, tagged. A failure is {"error": message}.
#include <algorithm>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "answer_parts/answer_parser.h"
#include "answer_parts/call_guide.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "inflight/guide.h"

namespace inflight {
namespace {

using Json = nlohmann::json;
using Kind = GuideSpec::Kind;

constexpr int kNumBytes = 256;
// What ends texts of JSON, the innermost part first.
constexpr std::string_view kClosing = "\"}],:0123456789";

struct Session {
  std::vector<std::string> vocabulary;
  std::shared_ptr<const Guide> guide;
  answer_parts::AnswerFormat format;  // of calls
};

Result<Json> Compile(const GuideSpec& spec, const Json& tokens, Session& session) {
  session.vocabulary.clear();
  for (int byte = 0; byte < kNumBytes; ++byte) {
    session.vocabulary.emplace_back(1, static_cast<char>(byte));
  }
  session.vocabulary.emplace_back();
  for (const Json& token : tokens) session.vocabulary.push_back(token);
  session.guide = nullptr;
  ASSIGN_OR_RETURN(session.guide, MakeGuide(spec, MakeTokenTexts(session.vocabulary)));
  return Json{{"num_tokens", session.guide->num_tokens()}};
}

Result<Json> Make(const Json& request, Session& session) {
  static const std::map<std::string, Kind> kinds = {
      {"json", Kind::kJson},     {"schema", Kind::kJsonSchema}, {"regex", Kind::kRegex},
      {"choice", Kind::kChoice}, {"grammar", Kind::kGrammar},   {"tagged", Kind::kTagged}};
  const GuideSpec spec = {.kind = kinds.at(request.at("kind")),
                          .text = request.at("text"),
                          .begins_after = request.at("begins_after")};
  return Compile(spec, request.at("tokens"), session);
}

// Calls of the request's functions.
Result<Json> MakeCalls(const Json& request, Session& session) {
  const std::string shown = request.at("template");
  auto names = std::make_shared<answer_parts::FunctionNames>();
  session.format = {.calls = answer_parts::FindCallFormat(shown),
                    .names = names,
                    .reasoning = answer_parts::FindReasoningTags(shown)};
  CHECK(session.format.calls != nullptr);
  for (const Json& function : request.at("functions")) {
    (*names)[function.at("name")] = function.at("texts").get<answer_parts::TextParameters>();
  }
  std::vector<answer_parts::GuidedFunction> functions;
  for (const Json& function : request.at("functions")) {
    const auto& name = function.at("name").get_ref<const std::string&>();
    functions.push_back({.name = name,
                         .schema = function.at("schema").get_ref<const std::string&>(),
                         .texts = &names->at(name)});
  }
  const GuideSpec answer = {.kind = Kind::kJsonSchema, .text = request.value("answer", "")};
  session.format.is_guided = !answer.text.empty();
  auto text = CallGuideText(*session.format.calls, functions,
                            {.must_call = request.at("must_call"),
                             .max_calls = request.at("max_calls"),
                             .answer = session.format.is_guided ? &answer : nullptr});
  if (!text.ok()) return text.status();
  const GuideSpec spec = {.kind = Kind::kTagged, .text = *std::move(text)};
  return Compile(spec, request.at("tokens"), session);
}

Json Read(const Json& request, const Session& session) {
  Json answers = Json::array();
  for (const Json& text : request.at("texts")) {
    answer_parts::AnswerParser parser(session.format, answer_parts::BeginsIn::kAnything);
    answer_parts::Parts parts;
    parser.Add(text.get<std::string>(), parts);
    parser.Finish(parts);
    std::string content;
    std::string reasoning;
    std::vector<std::pair<std::string, std::string>> calls;
    for (const answer_parts::Part& part : parts.items()) {
      using Part = answer_parts::Part::Kind;
      if (part.kind == Part::kCall) calls.emplace_back(part.text, "");
      if (part.kind == Part::kArguments) calls.back().second += part.text;
      if (part.kind == Part::kContent) content += part.text;
      if (part.kind == Part::kReasoning) reasoning += part.text;
    }
    answers.push_back({{"content", content}, {"reasoning", reasoning}, {"calls", calls}});
  }
  return {{"answers", answers}};
}

std::vector<uint32_t> MaskOf(const Session& session, GuideState& state) {
  std::vector<uint32_t> mask((session.vocabulary.size() + 31) / 32);
  CHECK(state.Mask(mask));
  return mask;
}

bool Has(const std::vector<uint32_t>& mask, size_t token) {
  return (mask[token / 32] >> (token % 32) & 1) != 0;
}

bool Matches(const Session& session, std::string_view text) {
  const auto state = session.guide->Begin();
  while (!text.empty()) {
    size_t token = static_cast<uint8_t>(text[0]);
    for (size_t i = kNumBytes; i < session.vocabulary.size(); ++i) {
      const std::string& candidate = session.vocabulary[i];
      if (candidate.size() > session.vocabulary[token].size() && text.starts_with(candidate))
        token = i;
    }
    const bool is_in_mask = Has(MaskOf(session, *state), token);
    CHECK_EQ(is_in_mask, state->Accept(static_cast<TokenId>(token)));
    if (!is_in_mask) return false;
    text.remove_prefix(session.vocabulary[token].size());
  }
  return state->CanEnd();
}

Json Match(const Json& request, const Session& session) {
  Json matches = Json::array();
  for (const Json& text : request.at("texts")) {
    matches.push_back(Matches(session, text.get<std::string>()));
  }
  return {{"matches", matches}};
}

// Unset where the text has no end within `hard` tokens.
std::optional<std::string> Walk(const Session& session, const std::vector<size_t>& closing,
                                bool closes_early, std::mt19937& random, int soft, int hard) {
  const auto state = session.guide->Begin();
  std::string text;
  for (int step = 0; step < hard; ++step) {
    const std::vector<uint32_t> mask = MaskOf(session, *state);
    std::vector<size_t> allowed;
    for (size_t token = 0; token < session.vocabulary.size(); ++token) {
      if (Has(mask, token)) allowed.push_back(token);
    }
    CHECK(state->CanEnd() || !allowed.empty());  // no text stands where it cannot go on
    if (allowed.empty() || (state->CanEnd() && (step > soft || random() % 4 == 0))) return text;
    size_t token = allowed[random() % allowed.size()];
    if (step > soft || closes_early) {
      const auto closes = std::ranges::find_if(closing, [&](size_t one) { return Has(mask, one); });
      if (closes != closing.end() && (step > soft ? random() % 8 != 0 : random() % 4 == 0))
        token = *closes;
    }
    CHECK(state->Accept(static_cast<TokenId>(token)));
    text += session.vocabulary[token];
  }
  return std::nullopt;
}

Json Walks(const Json& request, const Session& session) {
  std::mt19937 random(request.at("seed").get<uint32_t>());
  Json texts = Json::array();
  std::vector<size_t> closing;
  for (const Json& text : request.at("closing")) {
    const auto token = std::ranges::find(session.vocabulary, text.get<std::string>());
    CHECK(token != session.vocabulary.end());
    closing.push_back(static_cast<size_t>(token - session.vocabulary.begin()));
  }
  const bool closes_early = !closing.empty();
  for (const char byte : closes_early ? std::string_view() : kClosing) {
    closing.push_back(static_cast<uint8_t>(byte));
  }
  for (int i = 0; i < request.at("count").get<int>(); ++i) {
    const auto text =
        Walk(session, closing, closes_early, random, request.at("soft"), request.at("hard"));
    texts.push_back(text ? Json(*text) : Json());
  }
  return {{"texts", texts}};
}

Result<Json> Answer(const Json& request, Session& session) {
  const std::string op = request.at("op");
  if (op == "guide") return Make(request, session);
  if (op == "calls") return MakeCalls(request, session);
  if (session.guide == nullptr) return FailedPrecondition("there is no guide");
  if (op == "match") return Match(request, session);
  if (op == "walk") return Walks(request, session);
  if (op == "read") return Read(request, session);
  return InvalidArgument("op", "must be guide, calls, match, walk or read");
}

}  // namespace
}  // namespace inflight

int main() {
  inflight::Session session;
  for (std::string line; std::getline(std::cin, line);) {
    const auto answer = inflight::Answer(nlohmann::json::parse(line), session);
    const nlohmann::json reply =
        answer.ok() ? *answer : nlohmann::json{{"error", answer.status().ToString()}};
    std::cout << reply.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) << std::endl;
  }
}
