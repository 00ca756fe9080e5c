# Paths in the workspace, for the scripts that work on files. Every step of a path is entered and then
# seen to be within the workspace, so that no link leads out of it. Paths are escaped for printf's %b.
refuse() {
    echo "!$*"
    exit
}
text() {
    value=$(printf '%b_' "$1")
    value=${value%_}
}
# Goes to the directory that holds path $1; with $2 = make, makes it. Sets `name` and `root`.
enter() {
    cd -P -- "$work" 2>/dev/null || refuse refused the workspace cannot be entered
    root=$PWD name=$1
    while :; do
        case $name in */*) ;; *) return ;; esac
        step=${name%%/*} name=${name#*/}
        if [ ! -e "./$step" ] && [ ! -L "./$step" ]; then
            if [ "$2" != make ]; then refuse none; fi
            mkdir "./$step" 2>/dev/null || [ -d "./$step" ] || refuse refused cannot make a directory
        fi
        if [ ! -d "./$step" ]; then
            if [ -L "./$step" ]; then refuse path it leads through a link that cannot be followed; fi
            refuse kind a part of the path is not a directory
        fi
        cd -P -- "./$step" 2>/dev/null || refuse refused permission denied
        within "$PWD"
    done
}
within() {
    case $1/ in "$root"/*) ;; *) refuse path it leads out of the workspace ;; esac
}
# Sets `at` to what name means: a link is followed.
follow() {
    at=$PWD/$name
    if [ -L "./$name" ]; then
        at=$(readlink -f -- "./$name" && echo _) || refuse path a link that cannot be followed
        at=${at%?_}
        within "$at"
    fi
    if [ ! -e "$at" ]; then refuse none; fi
}
is_there() { [ -e "./$name" ] || [ -L "./$name" ]; }
