// SPDX-License-Identifier: Apache-2.0
// A journal of `inflight serve --record` as lines of JSON, for people and their programs.
#pragma once

#include "flight_recorder/journal.h"

namespace inflight::tool {

// The step of a turn's plan: {"turn":5,"step":3,"rows":[[request,tokens],...],...}.
std::string PlanLine(const flight_recorder::TurnRecord& turn);

// All of it on standard output: the header's line, then a line for each turn and gap.
Status PrintJournal(flight_recorder::Journal& journal);

}  // namespace inflight::tool
