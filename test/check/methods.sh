#!/bin/bash
# An op is a function (include/reel/ops, random.h), perhaps a member of Tensor and perhaps an in-place twin
# (tensor_methods.h). Checks that the three have the same parameters and defaults, that no function which PyTorch has as
# a member lacks one, and that test/ops/methods.cpp calls every member.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
exec perl -0777 - include/reel/tensor_methods.h include/reel/tensor.h test/ops/methods.cpp \
  include/reel/random.h include/reel/ops/*.h <<'PERL'
use strict;
my ($methods, $tensor, $test, @headers) = @ARGV;
my $wrong = 0;
sub complain { print "@_\n"; $wrong = 1 }
sub text {
  open my $file, '<', $_[0] or die "$_[0]: $!";
  local $_ = <$file>;
  s{//[^\n]*}{}g, s/\s+/ /g;
  return $_;
}
# All ways to call a declaration, "name(type parameter, …)", one for each number of defaults that is left out.
sub calls {
  my ($name, $parameters) = @_;
  my @list = $parameters =~ /((?:[^,{<]|\{[^}]*\}|<[^>]*>)+)/g;
  s/^ | $//g for @list;
  my %calls;
  for (my $n = @list; ; --$n) {
    $calls{"$name(" . join(', ', map { s/ = .*//r } @list[0 .. $n - 1]) . ')'} = 1;
    last if $n == 0 || $list[$n - 1] !~ / = /;
  }
  return keys %calls;
}
sub defaults { return $_[0] =~ /(\w+ = (?:\{[^}]*\}|[^,]+))/g }

# Functions of a tensor.
my (%functions, %defaults, %family);
for my $header (@headers) {
  my $text = text($header);
  while ($text =~ /([\w:<>]+) (\w+)\(const Tensor& \w+(?:, )?([^()]*)\)(?= ?[;{])/g) {
    my ($result, $name, $parameters) = ($1, $2, $3);
    $functions{"$result $_"} = 1 for calls($name, $parameters);
    $defaults{"$name: $_"} = 1 for defaults($parameters);
    $family{$name} = $header;
  }
}

# Members, and their in-place twins.
my $text = text($methods);
my %other = map { $_ => 1 } qw(where polygamma cpu cuda view_as reshape_as expand_as type_as);  # parameters elsewhere
my %members;
while ($text =~ /([\w:<>]+) (\w+)\(([^()]*)\) const;/g) {
  my ($result, $name, $parameters) = ($1, $2, $3);
  $members{$name} = 1;
  next if $other{$name};
  for (calls($name, $parameters)) {
    complain "$methods: $_ returns $result, but there is no such function" unless $functions{"$result $_"};
  }
  $defaults{"$name: $_"} or complain "$methods: $name has another default than the function, $_" for defaults($parameters);
}
my %fills = map { $_ => 1 } qw(copy_ fill_ uniform_ normal_ log_normal_ exponential_ cauchy_ geometric_ bernoulli_ random_);
my %twins;
while ($text =~ /Tensor& (\w+_)\(([^()]*)\);/g) {
  my ($twin, $parameters) = ($1, $2);
  next if $fills{$twin};
  my $name = $twin =~ s/_$//r;
  $twins{$name} = 1;
  for (calls($name, $parameters)) {
    complain "$methods: $twin is no twin of a function $_" unless $functions{"Tensor $_"};
  }
  $defaults{"$name: $_"} or complain "$methods: $twin has another default than the function, $_" for defaults($parameters);
}

# Functions of these families are members, but for those that PyTorch has as functions only.
my %only = map { $_ => 1 } qw(atleast_1d atleast_2d atleast_3d bilinear bincount bucketize combinations linear
  linear_relu one_hot put_along_dim searchsorted std_mean tensordot unique unique_consecutive var_mean);
$text = text($tensor);
for my $name (sort keys %family) {
  next unless $family{$name} =~ m{/(pointwise|product|rearrange|reduce|scan|sort|index)\.h$};
  next if $members{$name} || $only{$name} || $text =~ /Tensor \Q$name\E\(/;
  complain "$family{$name}: $name is no member of Tensor, nor listed here as a function only (CONTRIBUTING, An op)";
}

$text = text($test);
for (sort keys %members) { complain "$test: no call of the member $_" unless $text =~ /\b(METHOD|OTHER)\($_\b/ }
for (sort keys %twins) { complain "$test: no call of ${_}_" unless $text =~ /\bTWIN\($_\b/ }
printf "%d members, %d in-place twins\n", scalar keys %members, scalar keys %twins;
exit $wrong;
PERL
