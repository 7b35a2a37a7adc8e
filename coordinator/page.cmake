# Writes page_files.hpp: the files of page/ as string literals, so that the daemon is one file.
#   cmake -DFOLDER=... -DOUTPUT=... -P page.cmake
file(GLOB names RELATIVE ${FOLDER} ${FOLDER}/*)
set(type_html text/html)
set(type_css text/css)
set(type_js text/javascript)
set(lines "")
foreach(name IN LISTS names)
    string(REGEX REPLACE ".*\\." "" extension ${name})
    set(path "/${name}")
    if(name STREQUAL index.html)
        set(path "/")
    endif()
    file(READ ${FOLDER}/${name} body)
    string(APPEND lines
           "    PageFile{\"${path}\", \"${type_${extension}}; charset=utf-8\", R\"page(${body})page\"},\n")
endforeach()
file(WRITE ${OUTPUT}
"// Made by page.cmake of the files in page/.
#pragma once

#include <array>
#include <string_view>

namespace stacksaga::coordinator {

struct PageFile {
    std::string_view path;
    const char *content_type;
    std::string_view body;
};

inline constexpr std::array page_files{
${lines}};

} // namespace stacksaga::coordinator
")
