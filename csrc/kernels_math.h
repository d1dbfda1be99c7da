// Small arithmetic over an Isa's vectors; included before kernels_impl.h, inside the instruction set's namespace.


// e^x to about one unit in the last place, for x up to 88; what lies below -87 is 0, and so is minus infinity's.
inline F exp16(F x) {
    const F low = Isa::set1(-87.0f);
    const F clipped = Isa::min(Isa::max(x, low), Isa::set1(88.0f));
    const F n = Isa::rint(Isa::mul(clipped, Isa::set1(1.44269504088896341f)));
    F r = Isa::fma(n, Isa::set1(-0.693359375f), clipped);
    r = Isa::fma(n, Isa::set1(2.12194440e-4f), r);
    F p = Isa::set1(1.9875691500e-4f);
    p = Isa::fma(p, r, Isa::set1(1.3981999507e-3f));
    p = Isa::fma(p, r, Isa::set1(8.3334519073e-3f));
    p = Isa::fma(p, r, Isa::set1(4.1665795894e-2f));
    p = Isa::fma(p, r, Isa::set1(1.6666665459e-1f));
    p = Isa::fma(p, r, Isa::set1(5.0000001201e-1f));
    p = Isa::add(Isa::fma(Isa::mul(p, r), r, r), Isa::set1(1.0f));
    return Isa::keep_at_least(x, low, Isa::mul(p, Isa::power_of_two(n)));
}
