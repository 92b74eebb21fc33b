use IO::Socket::UNIX;
my ($how, $path) = @ARGV;
$| = 1;
print "as ", scalar getpwuid($<), " in $ENV{HOME}\n";
open(my $file, "<", "config");
print "configured: ", <$file>;
if ($how eq "dies") { print STDERR "error: there is no such thing as this\n"; exit 2 }
kill "KILL", $$ if $how eq "killed";
sleep 1000 if $how eq "silent";
$SIG{INT} = $how eq "deaf" ? "IGNORE" : sub { print "bye\n"; exit 0 };
syscall(157, 1, 0) if $how eq "escapes";  # prctl(PR_SET_PDEATHSIG)
my $listening = IO::Socket::UNIX->new(Type => SOCK_STREAM, Local => $path, Listen => 5);
print "ready";
while (my $client = $listening->accept) {
    sysread($client, my $word, 9);
    if ($word eq "die") { print STDERR "\nout of luck\n"; POSIX::_exit(3) if require POSIX }
}
