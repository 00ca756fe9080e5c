# Waits until a process has started, and says how. Arguments: number, name of the waiter.
D=$base/p/$1
mkdir -p "$D"
while :; do
    listen "$2"
    if [ -e "$D/started" ]; then
        echo started
        break
    fi
    if [ -e "$D/fail" ]; then
        read -r why <"$D/fail"
        echo "fail $why"
        break
    fi
    read -r _ <&7
done
rm -f "$D/w.$2"
