// SPDX-License-Identifier: Apache-2.0
#include "protocol/openai/served_models.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/status_macros.h"

namespace inflight::openai {

std::vector<ServedModel> ServedModels::List() const {
  std::vector<ServedModel> list;
  std::string last;
  for (const auto& loaded : server_.models()) {
    if (loaded->name() == last) continue;
    last = loaded->name();
    const auto model = server_.FindModel(last, /*version=*/"");
    if (!model.ok()) continue;
    const auto text = (*model)->text();
    if (text == nullptr) continue;
    const size_t before = list.size();
    for (const ModelAlias& alias : aliases_)
      if (alias.model == last) list.push_back({alias.name, *model, text});
    if (list.size() == before) list.push_back({last, *model, text});
  }
  return list;
}

std::vector<ServedModel> ServedModels::Adapters() const {
  const std::vector<ServedModel> models = List();
  std::set<std::string> taken;
  for (const ServedModel& served : models) taken.insert(served.name);
  std::vector<ServedModel> adapters;
  for (const ServedModel& served : models) {
    if (served.text->adapters == nullptr) continue;
    for (std::string& name : served.text->adapters->Names())
      if (taken.insert(name).second)
        adapters.push_back({name, served.model, served.text, name, served.name});
  }
  return adapters;
}

Result<ServedModel> ServedModels::Find(const std::string& name) const {
  const auto alias = std::ranges::find(aliases_, name, &ModelAlias::name);
  if (!name.empty()) {
    const auto model = server_.FindModel(alias == aliases_.end() ? name : alias->model, "");
    if (model.ok()) {
      if (auto text = (*model)->text()) return ServedModel{name, *model, std::move(text)};
    } else if (model.status().code() == StatusCode::kUnavailable && alias != aliases_.end()) {
      return model.status();
    }
  }
  std::vector<ServedModel> list = List();
  if (name.empty() && list.size() == 1) return std::move(list.front());
  for (ServedModel& served : list) {
    if (name.empty() || served.text->adapters == nullptr) continue;
    auto found = served.text->adapters->Find(name);
    if (found.ok())
      return ServedModel{.name = name,
                         .model = std::move(served.model),
                         .text = std::move(served.text),
                         .adapter = name,
                         .parent = std::move(served.name),
                         .found = std::make_shared<const serving::FoundAdapter>(*std::move(found))};
  }
  std::string names;
  for (const ServedModel& served : list) names += (names.empty() ? "'" : ", '") + served.name + "'";
  if (name.empty())
    return InvalidArgument("model",
                           "is missing; this server has " +
                               (names.empty() ? "no model that answers with text" : names));
  return NotFound("model: '" + name + "' is not served here; this server has " +
                  (names.empty() ? "no model that answers with text" : names))
      .WithField("model");
}

}  // namespace inflight::openai
