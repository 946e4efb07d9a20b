// engine/base/choices.h: the values of an enumeration with the names that flags, files and results give them.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace verbatim {

template <typename T>
using Choices = std::vector<std::pair<std::string, T>>;

template <typename T>
std::vector<std::string> names_of(const Choices<T>& choices) {
    std::vector<std::string> names;
    for (const auto& [name, choice] : choices) names.push_back(name);
    return names;
}

// REQUIRES: the value is one of the choices.
template <typename T>
std::string name_among(const Choices<T>& choices, T value) {
    return std::ranges::find(choices, value, &std::pair<std::string, T>::second)->first;
}

template <typename T>
std::optional<T> choice_by_name(const Choices<T>& choices, std::string_view name) {
    const auto found = std::ranges::find(choices, name, &std::pair<std::string, T>::first);
    return found == choices.end() ? std::nullopt : std::optional(found->second);
}

}  // namespace verbatim
