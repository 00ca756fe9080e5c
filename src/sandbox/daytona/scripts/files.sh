# Works on files in the workspace. Arguments: operation, path, and what the operation needs.
# Refuses a place that no file can be written to.
writable() {
    if [ -L "./$name" ]; then refuse path it is a link; fi
    if [ -d "./$name" ]; then refuse kind it is a directory; fi
    if [ -e "./$name" ] && [ ! -f "./$name" ]; then refuse kind it is not a regular file; fi
}
text "$2"
path=$value
case $1 in
open)
    enter "$path"
    if [ -z "$name" ]; then refuse kind it is a directory; fi
    follow
    if [ -d "$at" ]; then refuse kind it is a directory; fi
    if [ ! -f "$at" ]; then refuse kind it is not a regular file; fi
    if [ ! -r "$at" ]; then refuse refused permission denied; fi
    stat -c %s -- "$at"
    printf %s "$at" | base64
    ;;
place)
    enter "$path" make
    writable
    mkdir -p "$base/tmp"
    printf %s "$base/tmp/$3" | base64
    ;;
commit)
    enter "$path" make
    writable
    mode=644 done=created
    if [ -e "./$name" ]; then mode=$(stat -c %a -- "./$name") done=replaced; fi
    chmod "$mode" "$base/tmp/$3" && mv -f -- "$base/tmp/$3" "./$name" 2>/dev/null ||
        refuse refused cannot write there
    echo $done
    ;;
discard)
    rm -f "$base/tmp/$3"
    echo discarded
    ;;
delete)
    enter "$path"
    is_there || refuse none
    rm -rf -- "./$name" 2>/dev/null || refuse refused not all of it can be deleted
    echo deleted
    ;;
mkdir)
    enter "$path" make
    if [ -z "$name" ] || { [ -d "./$name" ] && [ ! -L "./$name" ]; }; then
        echo replaced
        exit
    fi
    if is_there; then refuse exists it is not a directory; fi
    mkdir -- "./$name" 2>/dev/null || refuse refused cannot make a directory
    echo created
    ;;
move)
    enter "$path"
    is_there || refuse none
    from=$PWD/$name
    text "$3"
    enter "$value" make
    done=created
    if is_there; then
        if [ "$4" != overwrite ]; then refuse exists the new place is taken; fi
        if [ -d "./$name" ] && [ ! -L "./$name" ]; then
            if [ ! -d "$from" ] || [ -L "$from" ]; then refuse exists a directory is there; fi
            rmdir -- "./$name" 2>/dev/null || refuse exists a directory that is not empty is there
        elif [ -d "$from" ] && [ ! -L "$from" ]; then
            refuse exists a file is there
        fi
        done=replaced
    fi
    mv -f -- "$from" "./$name" 2>/dev/null || refuse refused it cannot be moved
    echo $done
    ;;
mode)
    enter "$path"
    if [ -z "$name" ]; then name=.; fi
    follow
    chmod "$3" "$at" 2>/dev/null || refuse refused permission denied
    echo set
    ;;
list)
    # Names end in NUL; one more than the most is listed, so that the caller sees that there are more.
    enter "$path"
    if [ -n "$name" ]; then
        is_there || refuse none
        if [ -d "./$name" ]; then
            cd -P -- "./$name" 2>/dev/null || refuse refused permission denied
            within "$PWD"
            name=
        fi
    fi
    names=$base/tmp/$5
    if [ -n "$name" ]; then
        printf '%s\0' "./$name" >"$names"
    else
        find . -mindepth 1 -maxdepth "$3" -print0 2>/dev/null | tr '\0\n' '\n\0' | head -n "$4" |
            tr '\0\n' '\n\0' >"$names"
    fi
    if [ -n "$name" ]; then echo file; else echo directory; fi
    base64 <"$names"
    echo :
    if [ -s "$names" ]; then xargs -0 stat -c '%f %s %Y' -- <"$names" 2>/dev/null; fi
    rm -f "$names"
    ;;
esac
