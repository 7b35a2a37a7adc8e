#include "web/operators.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <crypt.h>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <functional>
#include <iterator>
#include <memory>
#include <sys/random.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <vector>

namespace stacksaga::coordinator {

std::string random_text(std::size_t bytes) {
    std::vector<unsigned char> random(bytes);
    for (std::size_t filled = 0; filled < bytes;) {
        const ssize_t count = ::getrandom(random.data() + filled, bytes - filled, 0);
        if (count < 0 && errno != EINTR)
            throw std::system_error(errno, std::generic_category(), "getrandom");
        filled += count > 0 ? static_cast<std::size_t>(count) : 0;
    }
    std::string text;
    for (const unsigned char byte : random)
        text += fmt::format("{:02x}", byte);
    return text;
}

bool equal_secrets(std::string_view left, std::string_view right) noexcept {
    if (left.size() != right.size())
        return false;
    unsigned difference = 0;
    for (std::size_t i = 0; i < left.size(); ++i)
        difference |= static_cast<unsigned>(left[i] ^ right[i]);
    return difference == 0;
}

namespace {

constexpr std::size_t name_bytes_max = 63;
constexpr std::size_t file_bytes_max = 1 << 20;
constexpr std::string_view yescrypt = "$y$";

/// A file descriptor that is closed at the end of its scope.
struct Descriptor {
    explicit Descriptor(int opened) : number(opened) {}
    Descriptor(const Descriptor &) = delete;
    Descriptor &operator=(const Descriptor &) = delete;
    ~Descriptor() {
        if (number >= 0)
            ::close(number);
    }
    int number;
};

/// Whether the file stands below the folder in which systemd hands over credentials
/// (LoadCredential=). They belong to root; that the daemon's user may read them is an entry of an
/// access control list, which stat() shows as the right of a group.
bool is_credential(const std::string &file) {
    const char *folder = std::getenv("CREDENTIALS_DIRECTORY");
    std::error_code error;
    if (!folder)
        return false;
    const auto below = std::filesystem::canonical(folder, error);
    if (error)
        return false;
    const auto path = std::filesystem::canonical(file, error);
    return !error && std::ranges::mismatch(below, path).in1 == below.end();
}

std::string hash_of(const std::string &password, const std::string &setting) {
    const auto data = std::make_unique<crypt_data>();
    const char *hash =
        ::crypt_rn(password.c_str(), setting.c_str(), data.get(), static_cast<int>(sizeof(*data)));
    std::string result = hash ? hash : "";
    ::explicit_bzero(data.get(), sizeof(*data));
    return result;
}

/// $y$ PARAMETERS $ SALT $ HASH, without checking a password: that takes long.
bool is_yescrypt(std::string_view hash) {
    constexpr std::size_t hash_length = 43;
    return hash.starts_with(yescrypt) && std::ranges::count(hash, '$') == 4 &&
           hash.size() - hash.rfind('$') - 1 == hash_length &&
           ::crypt_checksalt(std::string(hash).c_str()) == CRYPT_SALT_OK;
}

std::string new_hash(const std::string &password) {
    std::array<char, CRYPT_GENSALT_OUTPUT_SIZE> setting{};
    if (!::crypt_gensalt_rn(yescrypt.data(), 0, nullptr, 0, setting.data(),
                            static_cast<int>(setting.size())))
        throw std::system_error(errno, std::generic_category(), "crypt_gensalt");
    std::string hash = hash_of(password, setting.data());
    if (hash.empty())
        throw std::system_error(errno, std::generic_category(), "crypt");
    return hash;
}

} // namespace

bool is_operator_name(std::string_view name) {
    return !name.empty() && name.size() <= name_bytes_max && std::ranges::none_of(name, [](char c) {
        const auto byte = static_cast<unsigned char>(c);
        return byte < 0x20 || byte == 0x7F || c == ':';
    });
}

Operators parse_operators(std::string_view text, const std::string &file) {
    Operators operators;
    for (int number = 1; !text.empty(); ++number) {
        std::string_view line = text.substr(0, text.find('\n'));
        text.remove_prefix(std::min(line.size() + 1, text.size()));
        if (line.ends_with('\r'))
            line.remove_suffix(1);
        if (line.empty() || line.starts_with('#'))
            continue;
        const auto colon = line.find(':');
        const auto complain = [&](std::string_view complaint) {
            throw OperatorsError(fmt::format("{}:{}: {}", file, number, complaint));
        };
        if (colon == std::string_view::npos || !is_operator_name(line.substr(0, colon)))
            complain("expected NAME:HASH, a name of 1 to 63 bytes");
        const std::string_view hash = line.substr(colon + 1);
        if (!is_yescrypt(hash))
            complain("the hash is not of yescrypt ($y$...); make the line with "
                     "stacksaga-coordinator hash-password NAME");
        if (!operators.emplace(line.substr(0, colon), hash).second)
            complain("the name stands there twice");
    }
    return operators;
}

Operators read_operators(const std::string &file) {
    const auto complain = [&file](const std::string &complaint) {
        throw OperatorsError(fmt::format("{}: {}", file, complaint));
    };
    const Descriptor opened(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    struct stat about {};
    if (opened.number < 0 || ::fstat(opened.number, &about) != 0)
        complain(std::strerror(errno));
    if (!S_ISREG(about.st_mode))
        complain("is not a regular file");
    mode_t others = S_IRWXG | S_IRWXO;
    if (about.st_uid == 0 && is_credential(file))
        others &= ~static_cast<mode_t>(S_IRGRP);
    if ((about.st_mode & others) != 0)
        complain(fmt::format("has mode {:04o}, so that others may read it or write to it; "
                             "run chmod 0600 on it",
                             about.st_mode & 07777));
    if (about.st_uid != ::geteuid() && about.st_uid != 0)
        complain("belongs to another user than the daemon's");
    std::string text;
    std::array<char, 4096> bytes{};
    for (ssize_t count = 1; count > 0 && text.size() <= file_bytes_max;) {
        count = ::read(opened.number, bytes.data(), bytes.size());
        if (count < 0)
            complain(std::strerror(errno));
        text.append(bytes.data(), static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
    }
    if (text.size() > file_bytes_max)
        complain("is larger than a megabyte");
    Operators operators = parse_operators(text, file);
    if (operators.empty())
        complain("has no operators");
    return operators;
}

std::string operator_line(const std::string &name, const std::string &password) {
    return name + ":" + new_hash(password);
}

bool is_password(const std::string &password, const std::string &hash) {
    // crypt() would read a password only up to its first zero byte.
    if (password.find('\0') != std::string::npos)
        return false;
    const std::string made = hash_of(password, hash);
    return !made.empty() && equal_secrets(made, hash);
}

const std::string &hash_to_check(const Operators &operators, const std::string &user) {
    const auto found = operators.find(user);
    if (found != operators.end())
        return found->second;
    const std::size_t number = std::hash<std::string>{}(user) % operators.size();
    return std::next(operators.begin(), static_cast<std::ptrdiff_t>(number))->second;
}

namespace {

constexpr std::size_t id_bytes = 32;

} // namespace

void Sessions::end_expired(SteadyTime now) {
    std::erase_if(sessions_, [now](const Session &session) {
        return now - session.used >= idle_max || now - session.began >= age_max;
    });
}

const Session &Sessions::begin(const std::string &user, SteadyTime now) {
    end_expired(now);
    std::size_t of_user = 0;
    std::erase_if(sessions_, [&](const Session &session) {
        return session.user == user && ++of_user >= of_user_max;
    });
    sessions_.push_front({random_text(id_bytes), random_text(id_bytes), user, now, now});
    return sessions_.front();
}

const Session *Sessions::find(std::string_view id, SteadyTime now, bool is_use) {
    end_expired(now);
    // All are compared, each in the same time: neither shows how much of a guess is right.
    auto found = sessions_.end();
    for (auto each = sessions_.begin(); each != sessions_.end(); ++each)
        if (equal_secrets(each->id, id))
            found = each;
    if (found == sessions_.end())
        return nullptr;
    if (is_use) {
        found->used = now;
        sessions_.splice(sessions_.begin(), sessions_, found);
    }
    return &*found;
}

void Sessions::end(std::string_view id) {
    std::erase_if(sessions_, [id](const Session &session) { return session.id == id; });
}

void Sessions::end_of_user(std::string_view user) {
    std::erase_if(sessions_, [user](const Session &session) { return session.user == user; });
}

} // namespace stacksaga::coordinator
