# The output of a process from a position on; waits for some, or for its end. Prints a line
# `= NEXT OLDEST CODE TIMED`, then up to four segments: `@ POSITION`, its index, `:`, and the bytes in
# base64. Arguments: number, position (`-` waits for the end alone), name of the waiter, `now` not to wait.
D=$base/p/$1 from=$2
while :; do
    if [ ! -e "$D/started" ]; then
        echo '!none'
        exit
    fi
    listen "$3"
    # The end first: what is read afterwards is all there was.
    code='- 0'
    if [ -e "$D/exit" ]; then
        read -r code <"$D/exit"
    elif ! is_running "$D/sup" && [ ! -e "$D/exit" ]; then
        echo '!none'
        break
    fi
    if [ "$from" = - ]; then
        if [ "$code" != '- 0' ]; then
            : >"$D/seen"
            echo "= 0 0 $code"
            break
        fi
        read -r _ <&7
        continue
    fi
    if [ -p "$D/a" ]; then echo "$from" 1<>"$D/a"; fi
    oldest= pick= last= list=
    for index in "$D"/i.*; do
        at=${index##*.}
        if [ "$at" = '*' ]; then break; fi
        if [ -z "$oldest" ]; then oldest=$at; fi
        if [ $((at - B)) -le "$from" ] || [ -z "$pick" ]; then pick=$at list=$at; else list="$list $at"; fi
        last=$at
    done
    next=0
    if [ -n "$last" ]; then
        line=$(tail -n 1 "$D/i.$last" 2>/dev/null)
        next=${line#* }
        # It was dropped meanwhile.
        if [ -z "$next" ]; then continue; fi
    fi
    if [ "$next" -gt "$from" ] || [ "$next" -lt "$from" ] || [ "$code$4" != '- 0' ]; then
        echo "= $next $((${oldest:-$B} - B)) $code"
        n=0 rest=
        for at in $list; do
            if [ "$next" -le "$from" ]; then break; fi
            if [ $n = 4 ]; then
                rest=1
                break
            fi
            n=$((n + 1))
            echo "@ $((at - B))"
            cat "$D/i.$at" 2>/dev/null
            echo ':'
            skip=$((from - at + B))
            if [ $skip -gt 0 ]; then
                tail -c +$((skip + 1)) "$D/o.$at" 2>/dev/null | base64
            else
                base64 <"$D/o.$at" 2>/dev/null
            fi
        done
        if [ -z "$rest" ] && [ "$code" != '- 0' ]; then : >"$D/seen"; fi
        break
    fi
    read -r _ <&7
done
rm -f "$D/w.$3"
