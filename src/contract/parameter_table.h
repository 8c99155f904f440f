// SPDX-License-Identifier: Apache-2.0
// A table of parameter keys, and the loop that reads a config.pbtxt's parameters by it: each key is
// honoured, ignored for a reason or refused by name, and the report has a line for each.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "contract/key_report.h"
#include "contract/parameter_values.h"
#include "inflight/status.h"

namespace inflight::contract {

// What a key's handler works on. `Out` has a member `warnings`, a vector of texts for the log.
template <typename Out>
struct ParameterContext {
  std::string_view key;
  std::string_view note;  // of the key's entry
  Out& out;
  std::string ignored{};  // set by handlers of values without effect: why
};

template <typename Out>
struct ParameterEntry {
  std::string_view key;
  // The value is neither blank nor `${...}`.
  Status (*handler)(const std::string& value, ParameterContext<Out>& context);
  std::string_view note = {};                  // why the key never has an effect; empty = it has
  std::string (*shown)(const Out&) = nullptr;  // value in effect; listed also where the file is
                                               // silent
};

// --- handlers for any table ---

template <typename Out>
Status NotSupported(const std::string& value, const ParameterContext<Out>& context,
                    std::string_view remedy = {}) {
  std::string message = std::string(context.key) + " '" + value + "' is not supported; ";
  message += remedy.empty() ? "leave it out" : remedy;
  return Unimplemented(std::move(message));
}

template <typename Out>
void WarnDefault(const std::string& value, ParameterContext<Out>& context) {
  context.ignored = "not understood; the default is used";
  context.out.warnings.push_back(std::string(context.key) + " '" + value + "' is " +
                                 context.ignored);
}

// Takes effect on no answer here, for the reason in its note.
template <typename Out>
Status AcceptParameter(const std::string&, ParameterContext<Out>& context) {
  context.ignored = std::string(context.note);
  return Status::Ok();
}

template <typename Out>
Status RefuseParameter(const std::string& value, ParameterContext<Out>& context) {
  return NotSupported(value, context);
}

template <typename Out>
const ParameterEntry<Out>* FindEntry(std::span<const ParameterEntry<Out>> entries,
                                     std::string_view key) {
  for (const auto& entry : entries) {
    if (entry.key == key) return &entry;
  }
  return nullptr;
}

// The line of a key that the file does not have, or has as `${...}` or blank: a default that is in
// effect, or one as idle as any value of the key.
template <typename Out>
KeyLine OpenLine(const ParameterEntry<Out>& entry, const Out& base, bool is_in_file) {
  KeyLine line{.key = std::string(entry.key), .value = "unset"};
  if (entry.shown != nullptr) {
    line.value = entry.shown(base);
    if (line.value != entry.shown(Out{})) line.source = KeySource::kOption;
  }
  if (is_in_file) line.reason = "left unfilled";
  if (!entry.note.empty()) {
    line.effect = KeyEffect::kIgnored;
    line.reason += (line.reason.empty() ? "" : "; ") + std::string(entry.note);
  }
  return line;
}

template <typename Out>
KeyLine FileLine(const ParameterContext<Out>& context, const std::string& value,
                 const Status& status) {
  KeyLine line{.key = std::string(context.key), .value = value, .source = KeySource::kFile};
  if (!status.ok()) {
    line.effect = KeyEffect::kRefused;
    line.reason = status.message();
  } else if (!context.ignored.empty()) {
    line.effect = KeyEffect::kIgnored;
    line.reason = context.ignored;
  }
  return line;
}

// Fills `out`, which holds the defaults. Goes on after a refusal, so that the report is complete;
// the status is the first refusal.
template <typename Out>
Status ParseParameters(std::span<const ParameterEntry<Out>> entries,
                       const std::map<std::string, std::string>& parameters, Out& out,
                       KeyReport* report) {
  const Out defaults = out;
  Status first = Status::Ok();
  KeyReport lines;
  for (const auto& [key, value] : parameters) {
    const ParameterEntry<Out>* entry = FindEntry(entries, key);
    ParameterContext<Out> context{.key = key, .note = {}, .out = out};
    Status status = Status::Ok();
    if (entry == nullptr) {
      context.ignored = "not known";
      out.warnings.push_back("parameter '" + key + "' is not known; it has no effect");
    } else if (IsUnfilled(value)) {
      lines.push_back(OpenLine(*entry, defaults, /*is_in_file=*/true));
      continue;
    } else {
      context.note = entry->note;
      status = entry->handler(value, context);
    }
    lines.push_back(FileLine(context, value, status));
    if (first.ok()) first = status;
  }
  for (const auto& entry : entries) {
    if (entry.shown == nullptr || parameters.contains(std::string(entry.key))) continue;
    lines.push_back(OpenLine(entry, defaults, /*is_in_file=*/false));
  }
  if (report != nullptr) report->insert(report->end(), lines.begin(), lines.end());
  return first;
}

}  // namespace inflight::contract
