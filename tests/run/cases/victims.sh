echo "@begun@" > /dev/console
case {victim.is}-$node in
  none-*) exit ;;
  panic-vm-1) echo c > /proc/sysrq-trigger ;;
  agent-vm-1) kill -KILL $PPID ;;
  beneath-vm-1) exec dd if=/dev/zero of=$target/x bs=1M count=80 oflag=direct ;;
  inside-vm-1) exec dd if=/dev/zero of=$target/x bs=1M ;;
  memory-vm-1) exec tail /dev/zero ;;
esac
exec sleep 3600
