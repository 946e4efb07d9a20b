// engine/base/rare_list.h: owns a list that mostly has nothing: then it takes eight bytes.
#pragma once

#include <initializer_list>
#include <memory>
#include <utility>
#include <vector>

namespace verbatim {

template <typename T>
class RareList {
public:
    using value_type = T;
    using const_iterator = typename std::vector<T>::const_iterator;

    RareList() = default;
    RareList(std::initializer_list<T> values) {
        change([&](std::vector<T>& list) { list = values; });
    }
    RareList(const RareList& other)
        : values_(other.values_ ? std::make_unique<std::vector<T>>(other.all()) : nullptr) {}
    RareList(RareList&& other) noexcept : values_(std::move(other.values_)) {}
    RareList& operator=(RareList other) noexcept {
        std::swap(values_, other.values_);
        return *this;
    }

    [[nodiscard]] const std::vector<T>& all() const {
        static const std::vector<T> none;
        return values_ ? *values_ : none;
    }
    [[nodiscard]] const_iterator begin() const { return all().begin(); }
    [[nodiscard]] const_iterator end() const { return all().end(); }
    [[nodiscard]] size_t size() const { return all().size(); }
    [[nodiscard]] bool empty() const { return all().empty(); }
    [[nodiscard]] const T& front() const { return all().front(); }
    [[nodiscard]] const T& back() const { return all().back(); }
    void clear() { values_ = nullptr; }
    // Calls change(std::vector<T>&), and returns what it returns.
    template <typename Change>
    auto change(const Change& change) {
        struct Trim {
            RareList* list;
            ~Trim() {
                if (list->values_->empty()) list->clear();
            }
        };
        if (!values_) values_ = std::make_unique<std::vector<T>>();
        const Trim trim{this};
        return change(*values_);
    }

private:
    std::unique_ptr<std::vector<T>> values_;  // null where there are none
};

}  // namespace verbatim
