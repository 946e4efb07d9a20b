// engine/base/shared_value.h: owns values that many holders have in common, in eight bytes a holder.
//
//   V1  copies share one value, which never changes; the last of them takes it along. A default value takes no memory
//   V2  of equal values that SharedValues has given out and that are still held, there is one
//
// Holders count without synchronisation: they belong to one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>
#include <utility>

#include "engine/base/check.h"

namespace verbatim {

template <typename T>
class SharedValue {
public:
    SharedValue() = default;
    explicit SharedValue(T value) : held_(value == T{} ? nullptr : new Held{std::move(value)}) {}
    SharedValue(const SharedValue& other) : held_(other.held_) {
        if (held_ != nullptr) ++held_->num_holders;
    }
    SharedValue(SharedValue&& other) noexcept : held_(std::exchange(other.held_, nullptr)) {}
    SharedValue& operator=(SharedValue other) noexcept {
        std::swap(held_, other.held_);
        return *this;
    }
    SharedValue& operator=(T value) { return *this = SharedValue(std::move(value)); }
    ~SharedValue() {
        if (held_ != nullptr && --held_->num_holders == 0) delete held_;
    }

    [[nodiscard]] const T& operator*() const { return held_ == nullptr ? default_value() : held_->value; }
    [[nodiscard]] const T* operator->() const { return &**this; }
    operator const T&() const { return **this; }
    [[nodiscard]] int64_t num_holders() const { return held_ == nullptr ? 0 : held_->num_holders; }
    friend bool operator==(const SharedValue& a, const SharedValue& b) { return a.held_ == b.held_ || *a == *b; }
    friend bool operator==(const SharedValue& a, const T& b) { return *a == b; }

private:
    struct Held {
        T value;
        int64_t num_holders = 1;
    };
    static const T& default_value() {
        static const T value{};
        return value;
    }
    Held* held_ = nullptr;  // null: the default value
};

template <typename T>
class SharedValues {
public:
    [[nodiscard]] SharedValue<T> share(const T& value) {
        if (value == T{}) return {};
        const auto found = values_.find(value);
        return found != values_.end() ? *found : *values_.insert(SharedValue<T>(value)).first;
    }
    // The holder goes without its value, which is forgotten with the last one. REQUIRES: share() gave it out.
    void give_back(SharedValue<T>& held) {
        const SharedValue<T> value = std::exchange(held, SharedValue<T>());
        if (value.num_holders() != 2) return;  // this one and the set's
        CHECK(values_.erase(value) == 1, "a value comes back that was not given out");
    }
    [[nodiscard]] size_t size() const { return values_.size(); }

private:
    struct Less {
        using is_transparent = void;
        bool operator()(const T& a, const T& b) const { return a < b; }
    };
    std::set<SharedValue<T>, Less> values_;
};

}  // namespace verbatim
