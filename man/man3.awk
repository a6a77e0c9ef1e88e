# SPDX-License-Identifier: Apache-2.0
# Make the manual page of a public header from its comments:
#
#   awk -f man/man3.awk include/stepaf/plan.h >man/stepaf_plan.3
#
# A header is a first comment, which says what it is about (lines of it that are indented are shown as
# they are), and then chunks with an empty line between them: a comment and a declaration. A function's comment has paragraphs, then @param,
# then @return. A list "#define STEPAF_X_MAP(_)" is shown in the type that is made of it.

{ line[NR] = $0 }

END {
    WIDTH = 72 # of code
    read_chunks(NR)
    print_head()
    print_types()
    print_functions()
    print_tail()
}

# ---- reading ----

# Find the chunks: comments are in lines comment_at[c] .. code_at[c] - 1, code up to end_at[c].
function read_chunks(n,    i, c)
{
    n_chunks = 0
    for (i = 2; i <= n; i++) {
        if (line[i] == "")
            continue
        c = ++n_chunks
        comment_at[c] = i
        while (line[i] ~ /^(\/\*| \*)/)
            i++
        code_at[c] = i
        while (i < n && line[i] != "")
            i++
        end_at[c] = line[i] == "" ? i - 1 : i
    }
    # The first one is the header's own comment, with the guard after it.
    for (c = 2; c <= n_chunks; c++)
        kind[c] = kind_of(c)
}

function kind_of(c,    first)
{
    first = line[code_at[c]]
    if (first ~ /^STEPAF_API/)
        return "function"
    if (first ~ /^#define.*_MAP\(_\)/)
        return "list"
    return first ~ /^#(if|include|endif|ifdef)/ || first == "}" ? "" : "type"
}

# Comment @a c as text[1..n], stars taken off, empty between paragraphs. Returns n.
function read_comment(c, text,    i, n)
{
    n = 0
    for (i = comment_at[c]; i < code_at[c]; i++) {
        text[++n] = line[i]
        sub(/^ ?(\/\*\*?|\*)/, "", text[n])
        sub(/ *\*\/$/, "", text[n])
        as_it_is[n] = c == 1 && text[n] ~ /^   /
        if (!as_it_is[n])
            sub(/^ +/, "", text[n])
        if (n > 1 && match(text[n - 1], / ?[^ ]*@a$/)) { # its name is on this line
            text[n] = substr(text[n - 1], RSTART) " " text[n]
            sub(/^ /, "", text[n])
            text[n - 1] = substr(text[n - 1], 1, RSTART - 1)
        }
    }
    return n
}

# A function's declaration as one line.
function prototype(c,    i, text)
{
    text = ""
    for (i = code_at[c]; i <= end_at[c]; i++)
        text = text " " line[i]
    sub(/^ STEPAF_API /, "", text)
    gsub(/  +/, " ", text)
    return text
}

function name_of(c,    text)
{
    text = prototype(c)
    match(text, /stepaf_[a-z0-9_]+\(/)
    return substr(text, RSTART, RLENGTH - 1)
}

# ---- writing ----

function escape(text)
{
    gsub(/\\/, "\\e", text)
    gsub(/-/, "\\-", text)
    return (text ~ /^[.']/ ? "\\&" : "") text
}

# Words for people: @a marks a parameter.
function print_text(text,    out)
{
    text = escape(text)
    gsub(/[("]*(STEPAF|stepaf)_/, "\\%&", text) # no hyphens in names
    out = ""
    while (match(text, /@a [A-Za-z0-9_]+/)) {
        out = out substr(text, 1, RSTART - 1) "\\%\\fI" substr(text, RSTART + 3, RLENGTH - 3) "\\fP"
        text = substr(text, RSTART + RLENGTH)
    }
    print out text
}

function blanks(n)
{
    return sprintf("%" (n > 0 ? n : "") "s", "")
}

# A declaration, broken between arguments where it is too long.
function print_declaration(text,    n, part, i, row, hang)
{
    n = length(text) > WIDTH && text ~ /\(/ ? split(text, part, /, /) : 1
    if (n == 1) {
        print escape(text)
        return
    }
    hang = blanks(text ~ /\(\*[a-z_]+\)\(/ ? index(text, ")(") + 1 : index(text, "("))
    row = part[1]
    for (i = 2; i <= n; i++)
        if (length(row ", " part[i]) + 1 > WIDTH) {
            print escape(row ",")
            row = hang part[i]
        } else
            row = row ", " part[i]
    print escape(row)
}

# A comment of its own, in code.
function print_remark(indent, remark,    n, word, i, row)
{
    n = split(remark, word, / +/)
    row = indent "/* " word[1]
    for (i = 2; i <= n; i++)
        if (length(row " " word[i]) > WIDTH) {
            print escape(row)
            row = indent " * " word[i]
        } else
            row = row " " word[i]
    print escape(row " */")
}

# A line of code and the comment behind it, which goes before it where both are too long.
function print_code(text, remark,    indent)
{
    match(text, /^ */)
    indent = blanks(RLENGTH)
    if (remark != "" && length(text " /* " remark " */") <= WIDTH && text ~ /[^ ]/) {
        print escape(text " /* " remark " */")
        return
    }
    if (remark != "")
        print_remark(indent, remark)
    if (text ~ /[^ ]/)
        print_declaration(text)
}

# The members of the list @a c: enumerators, or fields of a structure.
function print_members(c, is_struct,    i, text, remark, member)
{
    for (i = code_at[c] + 1; i <= end_at[c]; i++) {
        text = line[i]
        remark = ""
        if (match(text, /\/\*.*\*\//)) {
            remark = substr(text, RSTART + 3, RLENGTH - 5)
            text = substr(text, 1, RSTART - 1)
        }
        gsub(/^ *_\(|\)[ \\]*$|"/, "", text)
        member = text
        sub(/,.*/, "", member)
        sub(/^[^,]*, /, "", text)
        if (match(text, /^-?[0-9]+, /)) {
            member = member " = " substr(text, 1, RLENGTH - 2)
            text = substr(text, RLENGTH + 1)
        }
        sub(/ +$/, "", remark)
        print_code("    " (is_struct ? "uint64_t " member ";" : member ","),
                   remark == "" ? text : remark)
    }
}

# The code of chunk @a c; @a list is the list that it is made of, if any.
function print_chunk(c, list,    i, text, remark)
{
    for (i = code_at[c]; i <= end_at[c]; i++) {
        text = line[i]
        if (list && text ~ /^#/)
            continue
        if (list && text ~ /_MAP\(/) {
            print_members(list, line[code_at[c]] ~ /struct/)
            continue
        }
        if (list)
            sub(/^ +/, "    ", text)
        remark = ""
        if (match(text, /\/\*/)) {
            remark = substr(text, RSTART)
            text = substr(text, 1, RSTART - 1)
            while (remark !~ /\*\/$/) {
                sub(/^ *\* */, " ", line[++i])
                remark = remark line[i]
            }
            gsub(/^\/\*\*? *| *\*\/$/, "", remark)
            gsub(/@a /, "", remark)
        }
        while (gsub(/\(/, "(", text) > gsub(/\)/, ")", text)) {
            sub(/^ +/, " ", line[++i])
            text = text line[i]
        }
        if (text ~ /[^ ]/)
            sub(/ +$/, "", text)
        sub(/ "?@[A-Z_]+@"?$/, "", text) # version.h.in
        print_code(text, remark)
    }
}

function print_paragraphs(c,    n, text, i)
{
    n = read_comment(c, text)
    if (n)
        print ".PP"
    for (i = 1; i <= n; i++)
        if (text[i] == "")
            print ".PP"
        else if (as_it_is[i]) {
            print ".EX"
            for (; as_it_is[i]; i++)
                print escape(substr(text[i], 2))
            print ".EE"
            i--
        } else
            print_text(text[i])
}

function print_head(    c, n, text, i, about, names, header)
{
    header = FILENAME
    sub(/^.*\//, "", header)
    sub(/\.in$/, "", header)
    page = "stepaf_" substr(header, 1, length(header) - 2)
    n = read_comment(1, text)
    about = text[1]
    for (i = 2; i <= n && about !~ /\./; i++)
        about = about " " text[i]
    for (c = 2; c <= n_chunks; c++)
        if (kind[c] == "function")
            names = names (names == "" ? "" : ", ") name_of(c)
    print ".\\\" SPDX-License-Identifier: Apache-2.0"
    print ".\\\" Made by man/man3.awk from include/stepaf/" header "; do not edit."
    print ".TH " toupper(page) " 3 \"\" stepaf \"Stepaf manual\"\n.ad l\n.SH NAME"
    sub(/\..*/, "", about)
    print escape(names == "" ? page : names) " \\- " escape(about)
    print ".SH SYNOPSIS\n.EX\n#include <stepaf/" header ">"
    for (c = 2; c <= n_chunks; c++)
        if (kind[c] == "function") {
            print ""
            print_declaration(prototype(c))
        }
    print ".EE\n.SH DESCRIPTION"
    print_paragraphs(1)
}

function print_types(    c, list, n)
{
    for (c = 2; c <= n_chunks; c++) {
        if (kind[c] != "list" && kind[c] != "type")
            continue
        if (!n++)
            print ".SH TYPES"
        print_paragraphs(c)
        if (kind[c] == "list") {
            list = c
            continue
        }
        print ".PP\n.EX"
        print_chunk(c, list)
        print ".EE"
        list = 0
    }
}

function print_functions(    c, n)
{
    for (c = 2; c <= n_chunks; c++)
        if (kind[c] == "function") {
            if (!n++)
                print ".SH FUNCTIONS"
            print ".SS " name_of(c)
            print_function(c)
        }
}

# Paragraphs, then a list of the parameters and of what is returned.
function print_function(c,    n, text, i, what)
{
    n = read_comment(c, text)
    for (i = 1; i <= n; i++) {
        if (text[i] == "") {
            print ".PP"
            continue
        }
        if (match(text[i], /^@(param +[A-Za-z0-9_]+|return)/)) {
            what = substr(text[i], 1, RLENGTH)
            text[i] = substr(text[i], RLENGTH + 1)
            sub(/^ +/, "", text[i])
            print ".TP\n" (what == "@return" ? ".B Returns" : ".I " substr(what, 8))
        }
        print_text(text[i])
    }
}

function print_tail()
{
    print ".SH SEE ALSO\n.BR stepaf (7),\n.BR stepaf_settings (7)" \
        (page == "stepaf_stream" ? ",\n.BR stepaf_stream (7)" : "")
}
