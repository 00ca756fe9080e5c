# Gives bytes to a process's input, or with `close` ends it. At most four pieces wait to be read.
# Arguments: number, name of the waiter, bytes in base64 or `close`.
D=$base/p/$1
while :; do
    if [ ! -e "$D/started" ]; then
        echo '!none'
        exit
    fi
    if [ "$3" = close ]; then
        if [ -p "$D/names" ] && [ ! -e "$D/closed" ]; then
            : >"$D/closed"
            echo close 1<>"$D/names"
        fi
        echo closed
        exit
    fi
    listen "$2"
    if [ -e "$D/exit" ] || [ -e "$D/closed" ] || [ ! -p "$D/names" ]; then
        echo '!closed'
        break
    fi
    n=0
    for piece in "$D"/in.*; do
        if [ -e "$piece" ]; then n=$((n + 1)); fi
    done
    if [ $n -lt 4 ]; then
        printf %s "$3" | base64 -d >"$D/new.$2" && mv "$D/new.$2" "$D/in.$2" && echo "$2" 1<>"$D/names"
        echo taken
        break
    fi
    read -r _ <&7
done
rm -f "$D/w.$2"
